package bucket

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
)

func init() { minio.DefaultRetryUnit = time.Millisecond } // of the client; the pauses of this package stay

// md5Text is the MD5 of content as a header has it.
func md5Text(content []byte) string {
	sum := md5.Sum(content)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// TestAServerThatIsBusyIsAskedAgain fails the first requests of each kind, more often than the client itself tries.
func TestAServerThatIsBusyIsAskedAgain(t *testing.T) {
	const failures = clientTries + 1
	for _, c := range []struct {
		what string
		fail func(w http.ResponseWriter)
	}{
		{"503", func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }},
		{"404 of a proxy", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }},
		{"no answer", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			var failed, puts atomic.Int64
			r := at(t, func(w http.ResponseWriter, request *http.Request) {
				if failed.Add(1) <= failures {
					c.fail(w)
					return
				}
				switch {
				case request.Method == http.MethodPut:
					_, _ = io.Copy(io.Discard, request.Body)
					if request.Header.Get("Content-Md5") == md5Text([]byte("content")) {
						puts.Add(1)
					}
				case request.Method == http.MethodDelete:
					w.WriteHeader(http.StatusNoContent)
				case request.URL.Query().Has("list-type"):
					_, _ = io.WriteString(w, page("", "some/where/plans/a"))
				default:
					broken(func(int64) int { return 100 })(w, request)
				}
			})
			ctx, n := context.Background(), 0
			err := r.List(ctx, "plans/", func(string, int64) error { n++; return nil })
			for _, call := range []func() error{
				func() error {
					o, err := r.Get(ctx, "x")
					return errors.Join(err, o.Close())
				},
				func() error {
					return r.Put(ctx, "x", func(w io.Writer) error {
						_, err := io.WriteString(w, "content")
						return err
					})
				},
				func() error { return r.Delete(ctx, "x") },
			} {
				failed.Store(0)
				err = errors.Join(err, call())
			}
			if err != nil || n != 1 || puts.Load() != 1 {
				t.Errorf("%d names, %d puts with the right MD5, %v", n, puts.Load(), err)
			}
		})
	}
}

func TestAListingThatBreaksOffGoesOnBehindItsLastName(t *testing.T) {
	var requests atomic.Int64
	r := at(t, func(w http.ResponseWriter, request *http.Request) {
		query := request.URL.Query()
		switch requests.Add(1) {
		case 1:
			_, _ = io.WriteString(w, page("more", "some/where/plans/a", "some/where/plans/b"))
		case 2:
			_, _ = io.WriteString(w, page("", "some/where/plans/c")[:60])
		case 3:
			if got := query.Get("start-after"); got != "some/where/plans/b" {
				t.Errorf("it goes on behind %q", got)
			}
			_, _ = io.WriteString(w, page("", "some/where/plans/c"))
		default:
			_, _ = io.WriteString(w, page("", "some/where/plans/a", "some/where/plans/b"))
		}
	})
	var names []string
	err := r.List(context.Background(), "plans/", func(name string, _ int64) error {
		names = append(names, name)
		return nil
	})
	if err != nil || !slices.Equal(names, []string{"plans/a", "plans/b", "plans/c"}) {
		t.Errorf("%v, %v", names, err)
	}
	// An error of the caller ends it, also one of this package.
	calls := 0
	err = r.List(context.Background(), "plans/", func(string, int64) error { calls++; return passing("own") })
	if calls != 1 || !isPassing(err) {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// TestAnObjectIsThereThoughTheAnswerThatJoinsItIsLost answers the request that joins the parts with a failure. The
// object counts if the server lists it with the size that was sent.
func TestAnObjectIsThereThoughTheAnswerThatJoinsItIsLost(t *testing.T) {
	const size = partSize + 5
	content := bytes.Repeat([]byte("x"), size)
	md5s := map[string]string{"1": md5Text(content[:partSize]), "2": md5Text(content[partSize:])}
	for _, c := range []struct {
		what, code string
		status     int
		listed     int64
		says       string
	}{
		{"no answer, and it is there", "", 0, size, ""},
		{"the upload is no more, and it is there", "NoSuchUpload", 404, size, ""},
		{"the upload is no more, and nothing is there", "NoSuchUpload", 404, -1, "NoSuchUpload"},
		{"the upload is no more, and another object is there", "NoSuchUpload", 404, 5, "NoSuchUpload"},
		{"a refusal", "AccessDenied", 403, size, "AccessDenied"},
	} {
		r := at(t, func(w http.ResponseWriter, request *http.Request) {
			switch query := request.URL.Query(); {
			case query.Has("uploads"):
				_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
			case request.Method == http.MethodPut:
				_, _ = io.Copy(io.Discard, request.Body)
				if got := request.Header.Get("Content-Md5"); got != md5s[query.Get("partNumber")] {
					t.Errorf("%s: part %s has the MD5 %q", c.what, query.Get("partNumber"), got)
				}
				w.Header().Set("ETag", `"part"`)
			case request.Method == http.MethodPost && c.status == 0:
				panic(http.ErrAbortHandler)
			case request.Method == http.MethodPost:
				w.WriteHeader(c.status)
				fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", c.code)
			case request.Method == http.MethodDelete:
				w.WriteHeader(http.StatusNoContent)
			case c.listed < 0:
				_, _ = io.WriteString(w, page(""))
			default:
				_, _ = io.WriteString(w, strings.ReplaceAll(page("", "some/where/x"), "<Size>1<", fmt.Sprintf("<Size>%d<", c.listed)))
			}
		})
		err := r.Put(context.Background(), "x", func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		})
		if c.says != "" {
			wantError(t, c.what, err, c.says)
		} else if err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestAnObjectThatDripsIsGivenUp(t *testing.T) {
	slow := func() *paced {
		return &paced{ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, 2*leastBytes))), limit: -1}
	}
	if n, err := slow().Read(make([]byte, 10)); n != 10 || !errors.Is(err, errTooSlow) {
		t.Errorf("10 bytes in too long a time: %d, %v", n, err)
	}
	fast := slow()
	fast.limit = 0
	if n, err := fast.Read(make([]byte, leastBytes)); n != leastBytes || err != nil {
		t.Errorf("enough bytes: %d, %v", n, err)
	}
}
