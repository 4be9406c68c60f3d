package main

import (
	"time"

	"github.com/IBM/sarama"
)

func readSarama(bootstrap string, topics []string, found chan<- record) error {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	config.Consumer.Return.Errors = true
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for _, topic := range topics {
		part, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		go func() {
			for err := range part.Errors() {
				failed <- err
			}
		}()
		go func() {
			for each := range part.Messages() {
				isLast := each.Offset+1 == part.HighWaterMarkOffset()
				found <- record{each.Topic, each.Offset, each.Key, each.Value, isLast}
			}
		}()
	}
	return <-failed
}
