package bucket

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestASweepDeletesOldUploadsOfARepositoryAlone sweeps uploads that a server lists in two pages. The name of one says what
// it is; the server fails to list or to abort some.
func TestASweepDeletesOldUploadsOfARepositoryAlone(t *testing.T) {
	const old, young = "2001-02-03T04:05:06Z", "2026-01-01T00:00:00Z"
	times := map[string][2]string{ // when an upload was begun, and when its part came
		"a-refused": {old, old}, "b-old": {old, old}, "c-foreign": {old, old}, "d-young": {young, old}, "e-timeless": {"", old},
		"f-busy": {old, young}, "g-timeless-part": {old, ""}, "h-kept": {old, old}, "i-endless": {old, old}, "j-old": {old, old},
	}
	element := func(name, text string) string {
		if text == "" {
			return ""
		}
		return "<" + name + ">" + text + "</" + name + ">"
	}
	var aborted []string
	r := at(t, func(w http.ResponseWriter, request *http.Request) {
		query := request.URL.Query()
		name := query.Get("uploadId")
		switch {
		case query.Has("uploads"):
			after, next := query.Get("key-marker"), ""
			if after == "" {
				next = "some/where/e-timeless"
			}
			_, _ = io.WriteString(w, "<R>"+element("NextKeyMarker", next)+element("IsTruncated", fmt.Sprint(next != "")))
			for upload, of := range times {
				if key := "some/where/" + upload; key > after && (next == "" || key <= next) {
					_, _ = io.WriteString(w, element("Upload", element("Key", key)+element("UploadId", upload)+element("Initiated", of[0])))
				}
			}
			_, _ = io.WriteString(w, "</R>")
		case request.Method == http.MethodDelete && name != "h-kept":
			aborted = append(aborted, name)
			w.WriteHeader(http.StatusNoContent)
		case request.Method == http.MethodDelete || name == "a-refused":
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = io.WriteString(w, "<R>"+element("Part", "<PartNumber>1</PartNumber>"+element("LastModified", times[name][1]))+
				element("IsTruncated", fmt.Sprint(name == "i-endless"))+"</R>")
		}
	})
	own := func(name string) bool { return !strings.Contains(name, "foreign") }
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for a sweep that does not end
	defer cancel()
	swept, err := r.Sweep(ctx, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), own)
	slices.Sort(aborted)
	if swept != 2 || !slices.Equal(aborted, []string{"b-old", "j-old"}) {
		t.Errorf("%d swept: %q", swept, aborted)
	}
	wantError(t, "three failures", err, "a-refused")
	wantError(t, "three failures", err, "and 2 more")
}

func TestASweepEndsWithoutProgress(t *testing.T) {
	for _, next := range []string{"", "some/where/x"} {
		r := at(t, func(w http.ResponseWriter, request *http.Request) {
			next := next
			if request.URL.Query().Get("key-marker") == "" { // the first page goes on
				next = "some/where/x"
			}
			fmt.Fprintf(w, "<R><IsTruncated>true</IsTruncated><NextKeyMarker>%s</NextKeyMarker></R>", next)
		})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for a sweep that does not end
		defer cancel()
		_, err := r.Sweep(ctx, time.Now(), func(string) bool { return true })
		wantError(t, next, err, "not behind which key")
	}
}

// TestASweepEndsInTime lists pages for ever, and then aborts for ever: each key is behind the one before.
func TestASweepEndsInTime(t *testing.T) {
	for _, uploads := range []bool{false, true} {
		var n atomic.Int64
		r := at(t, func(w http.ResponseWriter, request *http.Request) {
			upload := ""
			if uploads {
				upload = "<Upload><Key>some/where/x</Key><UploadId>1</UploadId><Initiated>2001-02-03T04:05:06Z</Initiated></Upload>"
			}
			if !request.URL.Query().Has("uploads") {
				upload = ""
			}
			fmt.Fprintf(w, "<R><IsTruncated>%t</IsTruncated><NextKeyMarker>some/where/%09d</NextKeyMarker>%s</R>",
				request.URL.Query().Has("uploads"), n.Add(1), upload)
		})
		r.sweepPatience = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // for a sweep that does not end
		defer cancel()
		_, err := r.Sweep(ctx, time.Now(), func(string) bool { return true })
		if wantError(t, "endless", err, "deadline"); ctx.Err() != nil {
			t.Error("the sweep did not end by itself")
		}
	}
}

// TestAnInterruptedSweepIsNoSuccess interrupts a sweep before the second of two uploads, of which neither needs a request.
func TestAnInterruptedSweepIsNoSuccess(t *testing.T) {
	r := at(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<R><Upload><Key>some/where/x</Key></Upload><Upload><Key>some/where/y</Key></Upload></R>")
	})
	ctx, cancel := context.WithCancel(context.Background())
	_, err := r.Sweep(ctx, time.Now(), func(string) bool {
		cancel()
		return false
	})
	wantError(t, "interrupted", err, "before the upload of some/where/y: context canceled")
}
