package workload

// This file makes the bytes of values: half zeros, or text.

import "fmt"

// Values says what the bytes of a value are, after the 16 that name it.
type Values string

const (
	// HalfZeros: random bytes up to half of the value, zeros from there. An engine's
	// compressor takes the zeros in one step.
	HalfZeros Values = "zeros"
	// Text: words of 5 to 13 letters, three in four of which are among 64 common ones. It
	// has no runs of a byte, and S2 and Snappy make about half of it.
	Text Values = "text"
)

// ParseValues returns the values of that name.
func ParseValues(name string) (Values, error) {
	switch v := Values(name); v {
	case HalfZeros, Text:
		return v, nil
	default:
		return "", fmt.Errorf("there are no values %q; there are %s and %s", name, HalfZeros, Text)
	}
}

// The vocabulary of text.
const (
	wordCount   = 512 // powers of two, as bits choose among them
	commonCount = 64
	wordRoom    = 16
)

// word is one with the space after it, in memory that is copied whole.
type word struct {
	text [wordRoom]byte
	n    int
}

// words is the same vocabulary in every process: consonants and vowels in turn.
var words = func() (all [wordCount]word) {
	const consonants, vowels = "bcdfghklmnprstvz", "aeiou"
	r := random(1)
	for i := range all {
		w := &all[i]
		for length := 5 + r.below(9); w.n < length; w.n++ {
			letters := consonants
			if w.n%2 == 1 {
				letters = vowels
			}
			w.text[w.n] = letters[r.below(len(letters))]
		}
		w.text[w.n] = ' '
		w.n++
	}
	return all
}()

// choices are what of nine bits chooses a word, by two bits more: no branch, which would
// be mispredicted.
var choices = [4]uint64{wordCount - 1, commonCount - 1, commonCount - 1, commonCount - 1}

// fillText fills b with words; the last one is cut.
func fillText(b []byte, r *random) {
	choice := uint64(0)
	at := 0
	for ; at+wordRoom <= len(b); choice >>= 16 {
		if choice == 0 { // four words are used up
			choice = r.next()
		}
		w := &words[choice>>2&choices[choice&3]]
		*(*[wordRoom]byte)(b[at:]) = w.text // the next word begins within it
		at += w.n
	}
	for at < len(b) {
		w := &words[r.next()%commonCount]
		at += copy(b[at:], w.text[:w.n])
	}
}
