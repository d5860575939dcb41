-- +goose Up

-- Each row is updated again and again: room on its page keeps the indexes out of it.
-- BenchmarkNodeStates measures what that gains.
ALTER TABLE node_state SET (fillfactor = 50);
ALTER TABLE node_slots SET (fillfactor = 70);

-- +goose Down
ALTER TABLE node_state RESET (fillfactor);
ALTER TABLE node_slots RESET (fillfactor);
