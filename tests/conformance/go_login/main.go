// A client that connects by the given properties, writes records, and reads each before it writes the next.
//
//	login '{"bootstrap": "host:port", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
//	        "user": "alice", "password": "...", "token": "...", "ca": "ca.pem", "certificate": "own.pem",
//	        "topic": "t", "records": "1", "pause.ms": "0"}'
//
// It prints "ok", or the error that a user of franz-go sees.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const patience = 30 * time.Second

type access map[string]string

func main() {
	var to access
	if err := json.Unmarshal([]byte(os.Args[1]), &to); err != nil {
		panic(err)
	}
	if err := run(to); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ok")
}

func run(to access) error {
	client, err := kgo.NewClient(options(to)...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	pause := time.Duration(number(to["pause.ms"])) * time.Millisecond
	for range number(to["records"]) {
		if err := client.ProduceSync(ctx, kgo.StringRecord("hello")).FirstErr(); err != nil {
			return err
		}
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if said := string(fetches.Records()[0].Value); said != "hello" || fetches.NumRecords() != 1 {
			return fmt.Errorf("read %d records, the first is %q", fetches.NumRecords(), said)
		}
		time.Sleep(pause)
	}
	return nil
}

func options(to access) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(to["bootstrap"]),
		kgo.DefaultProduceTopic(to["topic"]),
		kgo.ConsumeTopics(to["topic"]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AllowAutoTopicCreation(),
	}
	protocol := to["security.protocol"]
	if strings.HasSuffix(protocol, "SSL") {
		chosen = append(chosen, kgo.DialTLSConfig(trust(to)))
	}
	if strings.HasPrefix(protocol, "SASL") {
		chosen = append(chosen, kgo.SASL(mechanism(to)))
	}
	return chosen
}

func mechanism(to access) sasl.Mechanism {
	switch to["sasl.mechanism"] {
	case "PLAIN":
		return plain.Auth{User: to["user"], Pass: to["password"]}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: to["user"], Pass: to["password"]}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: to["user"], Pass: to["password"]}.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: to["token"]}.AsMechanism()
	}
}

func trust(to access) *tls.Config {
	pool := x509.NewCertPool()
	authority, err := os.ReadFile(to["ca"])
	if err != nil {
		panic(err)
	}
	pool.AppendCertsFromPEM(authority)
	config := &tls.Config{RootCAs: pool}
	if own, ok := to["certificate"]; ok {
		pair, err := tls.LoadX509KeyPair(own, own)
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}
