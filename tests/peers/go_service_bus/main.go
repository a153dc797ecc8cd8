// Go's official client, alone, against a Service Bus server: each operation once. Prints a line an operation, as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(what string, found any) {
	line, err := json.Marshal(map[string]any{what: found})
	check(err)
	fmt.Println(string(line))
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	return found
}

func receive(ctx context.Context, receiver *azservicebus.Receiver, count int) []*azservicebus.ReceivedMessage {
	found := []*azservicebus.ReceivedMessage{}
	for len(found) < count {
		more, err := receiver.ReceiveMessages(ctx, count-len(found), nil)
		check(err)
		found = append(found, more...)
	}
	return found
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client, err := azservicebus.NewClientFromConnectionString(os.Args[1], nil)
	check(err)
	defer client.Close(ctx)
	queue(ctx, client)
	later(ctx, client)
	session(ctx, client)
	subscription(ctx, client)
}

func queue(ctx context.Context, client *azservicebus.Client) {
	sender, err := client.NewSender("orders", nil)
	check(err)
	defer sender.Close(ctx)
	batch, err := sender.NewMessageBatch(ctx, nil)
	check(err)
	for _, body := range []string{"complete", "abandon", "defer", "dead-letter", "renew"} {
		id := "id-" + body
		message := &azservicebus.Message{Body: []byte(body), MessageID: &id, ApplicationProperties: map[string]any{"n": int64(7)}}
		check(batch.AddMessage(message, nil))
	}
	check(sender.SendMessageBatch(ctx, batch, nil))
	receiver, err := client.NewReceiverForQueue("orders", nil)
	check(err)
	defer receiver.Close(ctx)
	found := receive(ctx, receiver, 5)
	say("received", bodies(found))
	say("properties", []any{found[0].MessageID, found[0].ApplicationProperties["n"], *found[0].SequenceNumber})
	check(receiver.CompleteMessage(ctx, found[0], nil))
	changed := &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tried": "once"}}
	check(receiver.AbandonMessage(ctx, found[1], changed))
	check(receiver.DeferMessage(ctx, found[2], nil))
	reason, description := "bad", "no amount"
	why := &azservicebus.DeadLetterOptions{Reason: &reason, ErrorDescription: &description}
	check(receiver.DeadLetterMessage(ctx, found[3], why))
	before := *found[4].LockedUntil
	check(receiver.RenewMessageLock(ctx, found[4], nil))
	say("renewed", !found[4].LockedUntil.Before(before))
	check(receiver.CompleteMessage(ctx, found[4], nil))
	again := receive(ctx, receiver, 1)
	say("again", []any{string(again[0].Body), again[0].DeliveryCount, again[0].ApplicationProperties["tried"]})
	check(receiver.CompleteMessage(ctx, again[0], nil))
	peeked, err := receiver.PeekMessages(ctx, 5, nil)
	check(err)
	say("peeked", bodies(peeked))
	deferred, err := receiver.ReceiveDeferredMessages(ctx, []int64{*found[2].SequenceNumber}, nil)
	check(err)
	say("deferred", bodies(deferred))
	check(receiver.CompleteMessage(ctx, deferred[0], nil))
	var lost *azservicebus.Error
	err = receiver.CompleteMessage(ctx, deferred[0], nil)
	say("lost", errors.As(err, &lost) && lost.Code == azservicebus.CodeLockLost)
	dead, err := client.NewReceiverForQueue("orders", &azservicebus.ReceiverOptions{
		SubQueue: azservicebus.SubQueueDeadLetter, ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
	check(err)
	defer dead.Close(ctx)
	letter := receive(ctx, dead, 1)[0]
	say("dead", []string{string(letter.Body), *letter.DeadLetterReason, *letter.DeadLetterErrorDescription})
}

func later(ctx context.Context, client *azservicebus.Client) {
	sender, err := client.NewSender("orders", nil)
	check(err)
	defer sender.Close(ctx)
	never := []*azservicebus.Message{{Body: []byte("never")}}
	soon := []*azservicebus.Message{{Body: []byte("soon")}}
	numbers, err := sender.ScheduleMessages(ctx, never, time.Now().Add(time.Hour), nil)
	check(err)
	_, err = sender.ScheduleMessages(ctx, soon, time.Now().Add(500*time.Millisecond), nil)
	check(err)
	check(sender.CancelScheduledMessages(ctx, numbers, nil))
	receiver, err := client.NewReceiverForQueue("orders", nil)
	check(err)
	defer receiver.Close(ctx)
	found := receive(ctx, receiver, 1)
	say("scheduled", bodies(found))
	check(receiver.CompleteMessage(ctx, found[0], nil))
}

func session(ctx context.Context, client *azservicebus.Client) {
	sender, err := client.NewSender("sessions", nil)
	check(err)
	defer sender.Close(ctx)
	for _, id := range []string{"a", "b", "a"} {
		id := id
		check(sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("of " + id), SessionID: &id}, nil))
	}
	receiver, err := client.AcceptNextSessionForQueue(ctx, "sessions", nil)
	check(err)
	_, err = client.AcceptSessionForQueue(ctx, "sessions", "a", nil)
	say("refused", err != nil)
	check(receiver.SetSessionState(ctx, []byte("half way"), nil))
	check(receiver.RenewSessionLock(ctx, nil))
	state, err := receiver.GetSessionState(ctx, nil)
	check(err)
	found := []*azservicebus.ReceivedMessage{}
	for len(found) < 2 {
		more, err := receiver.ReceiveMessages(ctx, 2-len(found), nil)
		check(err)
		found = append(found, more...)
	}
	say("session", []any{receiver.SessionID(), string(state), bodies(found)})
	for _, message := range found {
		check(receiver.CompleteMessage(ctx, message, nil))
	}
	check(receiver.Close(ctx))
	other, err := client.AcceptSessionForQueue(ctx, "sessions", "b", nil)
	check(err)
	left, err := other.ReceiveMessages(ctx, 1, nil)
	check(err)
	check(other.CompleteMessage(ctx, left[0], nil))
	check(other.Close(ctx))
}

func subscription(ctx context.Context, client *azservicebus.Client) {
	sender, err := client.NewSender("news", nil)
	check(err)
	defer sender.Close(ctx)
	check(sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("headline")}, nil))
	receiver, err := client.NewReceiverForSubscription("news", "all", nil)
	check(err)
	defer receiver.Close(ctx)
	found := receive(ctx, receiver, 1)
	say("subscription", bodies(found))
	check(receiver.CompleteMessage(ctx, found[0], nil))
}
