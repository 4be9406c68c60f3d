// Reads topics of one partition from their start to the end that they have now, and prints each record as
// "topic offset key value" with key and value in hexadecimal.
//
//	readers CLIENT BOOTSTRAP TOPIC...
//
// CLIENT is franz-go or sarama.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

const patience = 60 * time.Second

// A record of partition 0. Next is the offset after which the topic has nothing more.
type record struct {
	topic      string
	offset     int64
	key, value []byte
	isLast     bool
}

var readers = map[string]func(bootstrap string, topics []string, found chan<- record) error{
	"franz-go": readFranzGo,
	"sarama":   readSarama,
}

func main() {
	found := make(chan record)
	failed := make(chan error, 1)
	topics := os.Args[3:]
	go func() { failed <- readers[os.Args[1]](os.Args[2], topics, found) }()
	said := bufio.NewWriter(os.Stdout)
	defer said.Flush()
	until := time.After(patience)
	for left := len(topics); left > 0; {
		select {
		case each := <-found:
			fmt.Fprintf(said, "%s %d %x %x\n", each.topic, each.offset, each.key, each.value)
			if each.isLast {
				left--
			}
		case err := <-failed:
			end("it failed: " + fmt.Sprint(err))
		case <-until:
			said.Flush()
			end("it asks for ever")
		}
	}
}

func end(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
