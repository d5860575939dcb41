package postgres

// LastLines is lastLines for its test.
var LastLines = lastLines
