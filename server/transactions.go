package server

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/otspb"
	"github.com/flagstone-db/flagstone/server/plainbuffer"
)

// This file holds local transactions (PROTOCOL 2.5 and 9).

func startLocalTransaction(ctx context.Context, on target, m *otspb.StartLocalTransactionRequest) (proto.Message, error) {
	if err := checkTexts(*m.TableName); err != nil {
		return nil, err
	}
	key, err := plainbuffer.DecodeRow(m.Key)
	if err != nil {
		return nil, err
	}
	id, err := on.service.StartLocalTransaction(ctx, on.instance, &ots.StartTransactionRequest{Table: *m.TableName, Row: key})
	if err != nil {
		return nil, err
	}
	return &otspb.StartLocalTransactionResponse{TransactionId: &id}, nil
}

func commitTransaction(ctx context.Context, on target, m *otspb.CommitTransactionRequest) (proto.Message, error) {
	if err := checkTexts(*m.TransactionId); err != nil {
		return nil, err
	}
	return &otspb.CommitTransactionResponse{}, on.service.CommitTransaction(ctx, on.instance, *m.TransactionId)
}

// abortTransaction answers with the id, unlike the protocol: the Node.js SDK decodes the answer
// as if it were the request, and fails on an empty one. Other clients ignore an unknown field.
func abortTransaction(ctx context.Context, on target, m *otspb.AbortTransactionRequest) (proto.Message, error) {
	if err := checkTexts(*m.TransactionId); err != nil {
		return nil, err
	}
	return &otspb.AbortTransactionRequest{TransactionId: m.TransactionId}, on.service.AbortTransaction(ctx, on.instance, *m.TransactionId)
}
