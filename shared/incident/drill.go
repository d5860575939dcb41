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
	DrillAlert     DrillStage = "alert"  // storealert has received its event
	DrillShown     DrillStage = "shown"  // the API has answered with its incident
	DrillTold      DrillStage = "told"   // a watch has notified people
	DrillTaken     DrillStage = "taken"  // somebody has taken its incident
)

// DrillStages are the stages in their order.
func DrillStages() []DrillStage {
	return []DrillStage{DrillSent, DrillPublished, DrillIngested, DrillJudged, DrillAlert, DrillShown, DrillTold, DrillTaken}
}

// A drill must reach each stage within DrillTime of its start, and be taken within DrillTakenTime.
const (
	DrillTime      = 5 * time.Minute
	DrillTakenTime = 30 * time.Minute
)

// DrillState is the state of a drill.
type DrillState string

// The states.
const (
	DrillRunning DrillState = "running"
	DrillPassed  DrillState = "passed"
	DrillFailed  DrillState = "failed"
)

// DrillOutcome returns the state of a drill and, if it failed, the stage at which it did: the
// first that is overdue or came too late.
func DrillOutcome(started time.Time, reached map[DrillStage]time.Time, now time.Time) (DrillState, DrillStage) {
	state := DrillPassed
	for _, stage := range DrillStages() {
		limit := DrillTime
		if stage == DrillTaken {
			limit = DrillTakenTime
		}
		at, ok := reached[stage]
		if !ok {
			state, at = DrillRunning, now
		}
		if at.Sub(started) > limit {
			return DrillFailed, stage
		}
	}
	return state, ""
}
