// Package keydesign helps to design primary keys. A table is divided between its partition keys,
// the values of its first key column, and never within one. So a good partition key has many
// values of about the same weight, and values that are written at the same time are not
// neighbours.
//
//	splice.go   several columns as one string that sorts as they do
//	prefix.go   hash prefixes, which spread neighbours
//	advise.go   what is wrong with the key of a table that exists, with figures
//	propose.go  what would be better, with figures
//	report.go   the same as text
//
// A splice makes the partition key finer, so that no value of it is heavy: the rows of "card 17"
// become those of "card 17, seller x", "card 17, seller y". Ranges over the beginning of the key
// stay ranges. A prefix breaks up an order in which everything new lies at the end. One range
// then becomes a range for each prefix.
package keydesign
