package api

import "context"

func (a *api) retrainWhenReady(ctx context.Context) {}
func (a *api) trainingHistory(ctx context.Context, in *trainingHistoryInput) (*trainingRunsOutput, error) {
	found, err := a.Store.TrainingRuns(ctx, in.Limit)
	if err != nil {
		return nil, err
	}
	return &trainingRunsOutput{Body: each(found, trainingRunOf)}, nil
}

func (a *api) trainingStatus(ctx context.Context, in *trainingRunPath) (*trainingRunOutput, error) {
	found, err := a.Store.TrainingRun(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &trainingRunOutput{Body: trainingRunOf(found)}, nil
}

func (a *api) triggerTraining(ctx context.Context, in *struct{}) (*trainingRunOutput, error) {
	found, err := a.Store.BeginManual(ctx)
	if err != nil {
		return nil, err
	}
	return &trainingRunOutput{Body: trainingRunOf(found)}, nil
}
