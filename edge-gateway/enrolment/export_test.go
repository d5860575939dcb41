package enrolment

import "context"

// Status sends one status.
func (s *Session) Status(ctx context.Context, report Report) (corrected bool, err error) {
	return s.status(ctx, report)
}
