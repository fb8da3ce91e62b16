package server

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/server/otspb"
)

func TestServedTellsOfEachRequest(t *testing.T) {
	batch := func(tables ...string) []byte {
		m := &otspb.BatchGetRowRequest{}
		for _, name := range tables {
			m.Tables = append(m.Tables, &otspb.TableInBatchGetRowRequest{
				TableName: ptr(name), PrimaryKey: [][]byte{getRowMessage().PrimaryKey}, MaxVersions: ptr(int32(1)),
			})
		}
		return marshal(t, m)
	}
	getRow := marshal(t, getRowMessage())
	signed := func(op string, body []byte) *draft { return newDraft(op, body).sign(testSecret) }
	created := marshal(t, &otspb.CreateTableRequest{
		TableMeta:          &otspb.TableMeta{TableName: ptr("new"), PrimaryKey: []*otspb.PrimaryKeySchema{{Name: ptr("pk"), Type: otspb.PrimaryKeyType_INTEGER.Enum()}}},
		ReservedThroughput: &otspb.ReservedThroughput{CapacityUnit: &otspb.CapacityUnit{Read: ptr(int32(0)), Write: ptr(int32(0))}},
	})
	refusal := &ots.Error{Code: ots.CodeObjectNotExist, Message: "no"}
	panics := func(context.Context) any { panic("planted") }
	for what, c := range map[string]struct {
		send   *draft
		answer any
		want   Served
	}{
		"a get":             {signed("GetRow", getRow), &ots.ReadResult{}, Served{Operation: "GetRow", Instance: testInstance, Table: "t", Code: CodeOK, Status: 200}},
		"one table":         {signed("BatchGetRow", batch("t")), refusal, Served{Operation: "BatchGetRow", Instance: testInstance, Table: "t", Code: ots.CodeObjectNotExist, Status: 404}},
		"several tables":    {signed("BatchGetRow", batch("t", "u")), refusal, Served{Operation: "BatchGetRow", Instance: testInstance, Code: ots.CodeObjectNotExist, Status: 404}},
		"a new table":       {signed("CreateTable", created), nil, Served{Operation: "CreateTable", Instance: testInstance, Table: "new", Code: CodeOK, Status: 200}},
		"no table":          {signed("ListTable", nil), []string{}, Served{Operation: "ListTable", Instance: testInstance, Code: CodeOK, Status: 200}},
		"a panic":           {signed("GetRow", getRow), panics, Served{Operation: "GetRow", Instance: testInstance, Table: "t", Code: ots.CodeInternalServerError, Status: 500}},
		"broken message":    {signed("GetRow", []byte{0xff}), nil, Served{Operation: "GetRow", Instance: testInstance, Code: ots.CodeParameterInvalid, Status: 400}},
		"no operation":      {signed("Nonsense", nil), nil, Served{Instance: testInstance, Code: ots.CodeParameterInvalid, Status: 400}},
		"a wrong signature": {newDraft("GetRow", getRow).sign("wrong"), nil, Served{Code: ots.CodeAuthFailed, Status: 403}},
		"another version": {newDraft("GetRow", getRow).set("x-ots-apiversion", "2014-08-08").sign(testSecret), nil,
			Served{Instance: testInstance, Code: ots.CodeParameterInvalid, Status: 400}},
	} {
		var told []Served
		s, fake := newTestServer(t, func(c *Config) { c.Served = func(r *Served) { told = append(told, *r) } })
		fake.answer(c.answer)
		r := handle(s, c.send)
		if len(told) != 1 {
			t.Errorf("%s: told %d times", what, len(told))
			continue
		}
		c.want.ID, c.want.Sent = r.header.Get("X-Ots-Requestid"), int64(len(r.body))
		if c.want.Instance != "" {
			c.want.Received = int64(len(c.send.body))
		}
		if told[0] != c.want || c.want.ID == "" || r.status != c.want.Status {
			t.Errorf("%s: told %+v, want %+v", what, told[0], c.want)
		}
		s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/healthz", nil))
		if len(told) != 1 {
			t.Errorf("a look at the health is told")
		}
	}
}
