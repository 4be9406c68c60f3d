package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func readFranzGo(bootstrap string, topics []string, found chan<- record) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachPartition(func(part kgo.FetchTopicPartition) {
			for _, each := range part.Records {
				isLast := each.Offset+1 == part.HighWatermark
				found <- record{each.Topic, each.Offset, each.Key, each.Value, isLast}
			}
		})
	}
}
