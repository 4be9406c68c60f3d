// A producer whose transactions end one right after the other: commit, abort, abort without a flush.
//
//	transactions BOOTSTRAP TRANSACTIONAL_ID TOPIC ROUNDS
//
// It ends with code 0 after all rounds, and with 1 and what was wrong at the first error.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	rounds, err := strconv.Atoi(os.Args[4])
	must(err)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.TransactionalID(os.Args[2]),
		kgo.DefaultProduceTopic(os.Args[3]),
	)
	must(err)
	deadline, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for round := 0; round < rounds; round++ {
		begin(client, deadline, fmt.Sprintf("commit-%d", round))
		must(client.Flush(deadline))
		must(client.EndTransaction(deadline, kgo.TryCommit))
		begin(client, deadline, fmt.Sprintf("abort-%d", round))
		must(client.Flush(deadline))
		must(client.EndTransaction(deadline, kgo.TryAbort))
		begin(client, deadline, fmt.Sprintf("quick-%d", round))
		must(client.AbortBufferedRecords(deadline))
		must(client.EndTransaction(deadline, kgo.TryAbort))
	}
	client.Close()
}

func begin(client *kgo.Client, deadline context.Context, value string) {
	must(client.BeginTransaction())
	client.Produce(deadline, kgo.StringRecord(value), func(*kgo.Record, error) {})
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
