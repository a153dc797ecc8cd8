// Go's event processor with its blob store, as a member of a mixed fleet: `official_processor FOLDER NAME`.
//
// What it is told is in FOLDER/go.json. Each event that it is given is a line `partition number` in FOLDER/read-NAME
// before the checkpoint that covers it is written.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azeventhubs/v2/checkpoints"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

type told struct {
	Connection, Hub, Storage, Container string
	Interval, Expiration                float64 // seconds; 0 for the defaults
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	folder, name := os.Args[1], os.Args[2]
	said, err := os.ReadFile(filepath.Join(folder, "go.json"))
	must(err)
	var told told
	must(json.Unmarshal(said, &told))
	read, err := os.OpenFile(filepath.Join(folder, "read-"+name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	blobs, err := container.NewClientFromConnectionString(told.Storage, told.Container, nil)
	must(err)
	store, err := checkpoints.NewBlobStore(blobs, nil)
	must(err)
	client, err := azeventhubs.NewConsumerClientFromConnectionString(told.Connection, told.Hub, "$Default", nil)
	must(err)
	earliest := true
	processor, err := azeventhubs.NewProcessor(client, store, &azeventhubs.ProcessorOptions{
		UpdateInterval:              time.Duration(told.Interval * float64(time.Second)),
		PartitionExpirationDuration: time.Duration(told.Expiration * float64(time.Second)),
		StartPositions:              azeventhubs.StartPositions{Default: azeventhubs.StartPosition{Earliest: &earliest}},
	})
	must(err)
	var one sync.Mutex
	write := func(partition string, events []*azeventhubs.ReceivedEventData) {
		one.Lock()
		defer one.Unlock()
		for _, event := range events {
			_, err := fmt.Fprintf(read, "%s %d\n", partition, event.SequenceNumber)
			must(err)
		}
		must(read.Sync())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		for {
			partition := processor.NextPartitionClient(ctx)
			if partition == nil {
				return
			}
			go func() {
				defer partition.Close(context.Background())
				if err := work(ctx, partition, write); err != nil {
					log.Printf("partition %s: %v", partition.PartitionID(), err)
				}
			}()
		}
	}()
	if err := processor.Run(ctx); ctx.Err() == nil {
		must(err)
	}
	must(client.Close(context.Background()))
}

func work(
	ctx context.Context,
	partition *azeventhubs.ProcessorPartitionClient,
	write func(string, []*azeventhubs.ReceivedEventData),
) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		events, err := partition.ReceiveEvents(waiting, 20, nil)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if len(events) == 0 {
			continue
		}
		write(partition.PartitionID(), events)
		if err := partition.UpdateCheckpoint(ctx, events[len(events)-1], nil); err != nil {
			return err
		}
	}
}
