package incident

import "time"

// DrillStage is a point on the way of an alarm drill.
type DrillStage string

// The stages, in their order.
const (
	DrillSent      DrillStage = "sent"
	DrillPublished DrillStage = "published" // Pub/Sub has it
	DrillIngested  DrillStage = "ingested"
	DrillJudged    DrillStage = "judged" // detect has made its incident
	DrillAlert     DrillStage = "alert"  // storealert has had its event
	DrillShown     DrillStage = "shown"  // the first answer of the API that had its incident
	DrillTold      DrillStage = "told"   // a watch has told people
	DrillTaken     DrillStage = "taken"  // somebody has taken its incident
)

// DrillStages are the stages in their order.
func DrillStages() []DrillStage {
	return []DrillStage{DrillSent, DrillPublished, DrillIngested, DrillJudged, DrillAlert, DrillShown, DrillTold, DrillTaken}
}

// The times from the start of a drill within which it must be told, and be taken.
const (
	DrillTime      = 5 * time.Minute
	DrillTakenTime = 30 * time.Minute
)

// DrillState says how a drill goes.
type DrillState string

// The states.
const (
	DrillRunning DrillState = "running"
	DrillPassed  DrillState = "passed"
	DrillFailed  DrillState = "failed"
)

// DrillOutcome is how a drill goes by the stages that it has reached, and the stage at which it
// failed: the first that is missing, or came too late.
func DrillOutcome(started time.Time, reached map[DrillStage]time.Time, now time.Time) (DrillState, DrillStage) {
	state := DrillPassed
	for _, stage := range DrillStages() {
		limit := DrillTime
		if stage == DrillTaken {
			limit = DrillTakenTime
		}
		at, is := reached[stage]
		if !is {
			state, at = DrillRunning, now
		}
		if at.Sub(started) > limit {
			return DrillFailed, stage
		}
	}
	return state, ""
}
