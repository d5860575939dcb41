-- +goose Up

-- A run is of the customer whose models it makes; null only of versions that made one
-- pair for all. It goes with its customer.
DROP INDEX model_training_runs_one_running;
CREATE UNIQUE INDEX model_training_runs_one_running ON model_training_runs ((COALESCE(customer_id, 0))) WHERE status = 'running';
ALTER TABLE model_training_runs
    DROP CONSTRAINT model_training_runs_customer_id_fkey,
    ADD CONSTRAINT model_training_runs_customer_id_fkey FOREIGN KEY (customer_id) REFERENCES customers (id) ON DELETE CASCADE;

-- +goose Down
UPDATE model_training_runs SET status = 'failed', completed_at = now(), error_message = 'Start it again.' WHERE status = 'running';
DROP INDEX model_training_runs_one_running;
CREATE UNIQUE INDEX model_training_runs_one_running ON model_training_runs ((true)) WHERE status = 'running';
ALTER TABLE model_training_runs
    DROP CONSTRAINT model_training_runs_customer_id_fkey,
    ADD CONSTRAINT model_training_runs_customer_id_fkey FOREIGN KEY (customer_id) REFERENCES customers (id) ON DELETE SET NULL;
