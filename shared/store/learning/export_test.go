package learning

// A day's questions, for tests of the draw.
type Question = question

var Admit = draw
