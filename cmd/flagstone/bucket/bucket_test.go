package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "not-to-be-shown-anywhere"

// keys are the environment of the tests.
func keys(name string) string {
	return map[string]string{"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}[name]
}

// at returns a repository at a server that answers as handle does.
func at(t *testing.T, handle http.HandlerFunc) *Repository {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	r, err := Open("s3://backups/some/where", Options{Endpoint: server.URL, Env: keys})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantError fails the test unless an error has a text, and is short and without secrets.
func wantError(t *testing.T, what string, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), secret) || len(err.Error()) > 1000 {
		t.Errorf("%s: got %.2000v; want ...%s...", what, err, text)
	}
}

func TestWhatNamesNoBucketIsRefused(t *testing.T) {
	for _, c := range []struct{ location, endpoint, says string }{
		{"s3://", "", "names no bucket"},
		{"s3:///x", "", "names no bucket"},
		{"s3://id:" + secret + "@bucket/x", "", "without keys"},
		{"s3://bucket/x?key=" + secret, "", "without keys"},
		{"s3://bucket/../x", "", "a part that is"},
		{"s3://bucket//x", "", "a part that is empty"},
		{"s3://bucket", "s3.example.com", "https://"},
		{"s3://bucket", "https://id:" + secret + "@example.com", "without keys"},
		{"s3://bucket", "https://example.com/path", "without keys and paths"},
		{"s3://bucket", "http://example.com", "http does not encrypt"},
		{"s3://bucket", "http://10.0.0.1:9000", "http does not encrypt"},
	} {
		_, err := Open(c.location, Options{Endpoint: c.endpoint, Env: keys})
		wantError(t, c.location+" "+c.endpoint, err, c.says)
	}
	_, err := Open("s3://bucket", Options{Env: func(string) string { return "" }})
	wantError(t, "no key", err, "AWS_ACCESS_KEY_ID")
	for _, o := range []Options{{}, {Endpoint: "http://localhost:9000"}, {Endpoint: "http://[::1]:9000/"}, {Endpoint: "http://example.com", Plaintext: true}} {
		o.Env = keys
		if r, err := Open("s3://bucket/a/b/", o); err != nil || r.prefix != "a/b/" {
			t.Errorf("%q: %v", o.Endpoint, err)
		}
	}
}

// page is an answer of a listing.
func page(next string, names ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", next != "", next)
	for _, name := range names {
		fmt.Fprintf(&b, "<Contents><Key>%s</Key><Size>1</Size></Contents>", name)
	}
	return b.String() + "</ListBucketResult>"
}

func TestAListingThatIsWrongOrEndlessIsRefused(t *testing.T) {
	var n atomic.Int64
	for _, c := range []struct {
		what, says string
		answer     func() string
	}{
		{"names elsewhere", "does not begin so", func() string { return page("", "other/plans/x") }},
		{"a long name", "longer than names", func() string { return page("", "some/where/plans/"+strings.Repeat("x", maxName)) }},
		{"other names", "does not begin so", func() string { return page("", "some/where/objects/x") }},
		{"the same page for ever", "must ascend", func() string { return page("more", "some/where/plans/a", "some/where/plans/b") }},
		{"names for ever", "more than 10 names", func() string { return page("more", fmt.Sprintf("some/where/plans/%09d", n.Add(1))) }},
		{"empty pages for ever", "deadline", func() string { return page("more") }},
		{"a page that is cut", "EOF", func() string { return page("", "some/where/plans/a")[:60] }},
		{"a page without end", "more than 2097152 bytes", func() string { return "<ListBucketResult>" + strings.Repeat("<A>x</A>", maxAnswer/8) }},
		{"no XML", "EOF", func() string { return "hello" }},
	} {
		r := at(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer()) })
		r.maxListed, r.patience = 10, 0
		if strings.HasPrefix(c.what, "empty") {
			r.listPatience = 200 * time.Millisecond
		}
		err := r.List(context.Background(), "plans/", func(string, int64) error { return nil })
		wantError(t, c.what, err, c.says)
	}
}

// broken answers a request for an object of 100 bytes with as many as give says, and then breaks off.
func broken(give func(request int64) int) http.HandlerFunc {
	content := bytes.Repeat([]byte("0123456789"), 10)
	var requests atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		var from int
		if text := r.Header.Get("Range"); text != "" {
			from, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(text, "bytes="), "-"))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-99/100", from))
		}
		w.Header().Set("Content-Length", strconv.Itoa(100-from))
		w.Header().Set("ETag", `"tag"`)
		w.Header().Set("Last-Modified", time.Unix(1e9, 0).UTC().Format(http.TimeFormat))
		if from > 0 {
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write(content[from:min(100, from+give(requests.Add(1)))])
	}
}

func TestAnAnswerThatBreaksOffIsContinuedWithinBounds(t *testing.T) {
	read := func(r *Repository) (string, error) {
		o, err := r.Get(context.Background(), "object")
		if err != nil {
			return "", err
		}
		defer o.Close()
		content, err := io.ReadAll(o)
		return string(content), err
	}
	got, err := read(at(t, broken(func(int64) int { return 30 })))
	if err != nil || got != strings.Repeat("0123456789", 10) {
		t.Errorf("in four pieces: %q, %v", got, err)
	}
	impatient := at(t, broken(func(int64) int { return 1 }))
	impatient.patience = time.Nanosecond // it is over when the second answer breaks off
	got, err = read(impatient)
	wantError(t, "one byte each time", err, "at byte 2 of 100")
	if errors.Is(err, io.ErrUnexpectedEOF) || got != "01" {
		t.Errorf("a broken answer gives %q, and %v, which is taken for damage", got, err)
	}
	_, err = read(at(t, func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range") // it answers with the beginning again
		broken(func(int64) int { return 30 })(w, r)
	}))
	wantError(t, "a server without ranges", err, "does not go on at byte 30")
	_, err = read(at(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Last-Modified", time.Unix(1e9, 0).UTC().Format(http.TimeFormat))
		w.(http.Flusher).Flush()
	}))
	wantError(t, "no length", err, "no length")
}

func TestRefusalsOfAServerAreSaidAndBounded(t *testing.T) {
	refuse := func(status int, body string) *Repository {
		return at(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	ctx := context.Background()
	if _, err := refuse(404, "<Error><Code>NoSuchKey</Code></Error>").Get(ctx, "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no object: %v", err)
	}
	for _, body := range []string{"", "<html>not found</html>", "<Error></Error>", "<Error><Code>NoSuchKey"} {
		r := refuse(404, body)
		r.patience = 0
		if _, err := r.Get(ctx, "x"); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("404 with %q: %v", body, err)
		}
		if err := r.Delete(ctx, "x"); err == nil {
			t.Errorf("404 with %q for a delete is a success", body)
		}
	}
	_, err := refuse(404, "<Error><Code>NoSuchBucket</Code><Message>no\nbucket</Message></Error>").Get(ctx, "x")
	if wantError(t, "no bucket", err, `NoSuchBucket: "no\nbucket"`); errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no bucket is no object: %v", err)
	}
	_, err = refuse(403, "<Error><Code>AccessDenied</Code><Message>"+strings.Repeat("x", 1<<20)+"</Message></Error>").Get(ctx, "x")
	wantError(t, "a long message", err, "AccessDenied")
	r := refuse(403, "<Error><Code>AccessDenied</Code></Error>")
	put := func(io.Writer) error { return nil }
	wantError(t, "put", r.Put(ctx, "x", put), "s3://backups/some/where/x")
	wantError(t, "delete", r.Delete(ctx, "x"), "s3://backups/some/where/x")
	own := errors.New("of the writer")
	if err := r.Put(ctx, "x", func(io.Writer) error { return own }); !errors.Is(err, own) {
		t.Errorf("an error of the writer: %v", err)
	}
}

// TestASilentServerIsGivenUp has a server that accepts requests and answers nothing, or breaks off within an answer.
func TestASilentServerIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		what           string
		silence, whole time.Duration
		request, first string
		status         int
	}{
		{"no byte comes", 50 * time.Millisecond, time.Hour, "/b?list-type=2", "", 200},
		{"bytes come for ever", time.Hour, 100 * time.Millisecond, "/b?list-type=2", "x", 200},
		{"no byte of an object comes", 50 * time.Millisecond, time.Hour, "/b/o", "x", 200},
		{"a refusal of an object for ever", time.Hour, 100 * time.Millisecond, "/b/o", "x", 403},
		{"a missing object for ever", time.Hour, 100 * time.Millisecond, "/b/o", "x", 404},
	} {
		ended := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.first)
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		}))
		request, err := http.NewRequest(http.MethodGet, server.URL+c.request, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := newTransport(nil, c.silence, c.whole, time.Hour).RoundTrip(request)
		if err == nil {
			_, err = io.ReadAll(answer.Body)
			_ = answer.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: no error", c.what)
		}
		close(ended)
		server.Close()
	}
}
