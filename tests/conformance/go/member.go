// A member of a consumer group: it says what it has handled, "partition offset" a line, and commits it.
//
//	member BOOTSTRAP GROUP TOPIC [group.instance.id=ID]
//
// SIGTERM lets it leave the group in order.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(options(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for terminated.Err() == nil {
		handle(client, client.PollFetches(terminated))
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}

func options(bootstrap, group, topic string, properties []string) []kgo.Opt {
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
	for _, property := range properties {
		name, value, _ := strings.Cut(property, "=")
		switch name {
		case "group.instance.id":
			chosen = append(chosen, kgo.InstanceID(value))
		default:
			panic("no such property here: " + name)
		}
	}
	return chosen
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
