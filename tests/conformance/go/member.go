// A member of a consumer group: it says what it has handled, "partition offset" a line, and commits it.
//
//	member BOOTSTRAP GROUP TOPIC [group.instance.id=ID] [start.ms=TIMESTAMP] [pause=PARTITION]
//
// With start.ms it starts at that time where nothing is committed; it leaves a paused partition alone
// until SIGCONT. SIGTERM lets it leave the group in order.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	topic, properties := os.Args[3], propertiesOf(os.Args[4:])
	client, err := kgo.NewClient(options(os.Args[1], os.Args[2], topic, properties)...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if partition, ok := properties["pause"]; ok {
		pauseUntilContinued(client, topic, int32(number(partition)))
	}
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for terminated.Err() == nil {
		handle(client, client.PollFetches(terminated))
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}

func propertiesOf(pairs []string) map[string]string {
	properties := map[string]string{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		properties[name] = value
	}
	return properties
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func options(bootstrap, group, topic string, properties map[string]string) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	}
	if instance, ok := properties["group.instance.id"]; ok {
		chosen = append(chosen, kgo.InstanceID(instance))
	}
	if start, ok := properties["start.ms"]; ok {
		chosen = append(chosen, kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(number(start))))
	}
	return chosen
}

func pauseUntilContinued(client *kgo.Client, topic string, partition int32) {
	paused := map[string][]int32{topic: {partition}}
	client.PauseFetchPartitions(paused)
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	go func() {
		<-continued
		client.ResumeFetchPartitions(paused)
	}()
}

func handle(client *kgo.Client, fetches kgo.Fetches) {
	records := fetches.Records()
	if len(records) == 0 {
		return
	}
	said := bufio.NewWriter(os.Stdout)
	for _, record := range records {
		fmt.Fprintf(said, "%d %d\n", record.Partition, record.Offset)
	}
	said.Flush()
	// After a rebalance somebody else has the partition, and handles it again.
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := client.CommitRecords(soon, records...); err != nil {
		fmt.Fprintln(os.Stderr, "not committed:", err)
	}
}
