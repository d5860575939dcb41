// Predictions, for the user's verdicts on them.
import { useQuery } from "@tanstack/preact-query";
import { Fragment, type ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, unwrap, messageOf, ApiError, type Prediction } from "../api/client";
import { preferences } from "../api/preferences";
import { keys, refresh, refreshEvery, useHistory, useOverview, useThresholds } from "../api/queries";
import { count, withUnit } from "../logic/format";
import { columnsOf, gapOf } from "../logic/series";
import { Charts } from "../components/chunk";
import { May } from "../components/may";
import { Timestamp } from "../components/timestamp";
import { Empty, Failure, Loading, StatusMark } from "../components/states";
import { useTitle } from "../components/title";
import { TrainingRuns } from "../components/training";

const perRetraining = 100;
const queueLimit = 50;

export default function PredictionsPage() {
  useTitle("Predictions");
  return (
    <>
      <h1>Predictions</h1>
      <Progress />
      <Queue />
      <TrainingRuns />
    </>
  );
}

function usePredictions(status: "unvalidated" | "waiting", limit: number) {
  return useQuery({
    queryKey: [...keys.predictions, status, limit], refetchInterval: status === "waiting" ? false : 4 * refreshEvery,
    queryFn: () => unwrap(api.GET("/api/v1/prediction-feedback", { params: { query: { status, limit } } })),
  });
}

/** How many verdicts are missing until the next training run. */
function Progress() {
  const stats = useQuery({
    queryKey: [...keys.predictions, "stats"],
    queryFn: () => unwrap(api.GET("/api/v1/prediction-feedback/stats")),
  });
  const waiting = usePredictions("waiting", perRetraining);
  const failed = [stats, waiting].find(({ error }) => error);
  if (failed) return <Failure error={failed.error} retry={() => void failed.refetch()} />;
  if (!stats.data || !waiting.data) return <Loading what="progress" />;
  return (
    <section class="card" aria-labelledby="progress">
      <h2 id="progress">To the next retraining</h2>
      <label class="progress">
        <span><strong class="big">{waiting.data.length}</strong> of {perRetraining} of your verdicts wait
          for training</span>
        <progress max={perRetraining} value={waiting.data.length} />
      </label>
      <p class="hint">
        {stats.data.ready_for_retraining && "Enough verdicts are there: the models retrain now. "}
        In all: {count(stats.data.total_predictions)} predictions, {count(stats.data.ok_count)} judged
        right, {count(stats.data.not_ok_count)} wrong.
      </p>
    </section>
  );
}

function Queue() {
  const queue = usePredictions("unvalidated", queueLimit);
  // Given a verdict or skipped here. They are not shown again, though the list may be older.
  const [passed, setPassed] = useState<ReadonlySet<number>>(new Set());
  // The prediction that is shown stays until the user is done with it, though the list may change.
  const shown = useRef<Prediction>();
  if (queue.error && !queue.data) return <Failure error={queue.error} retry={() => void queue.refetch()} />;
  if (!queue.data) return <Loading what="predictions" />;

  const left = queue.data.filter((prediction) => !passed.has(prediction.id));
  if (!shown.current || passed.has(shown.current.id)) shown.current = left[0];
  const current = shown.current;
  return (
    <section class="card" aria-labelledby="queue">
      <h2 id="queue">To validate</h2>
      {queue.error && <Failure error={queue.error} retry={() => void queue.refetch()} />}
      {current ? (
        <Fragment key={current.id}>
          <PredictionView prediction={current} />
          <May role="operator">
            <Verdict
              prediction={current} onNext={() => setPassed((before) => new Set(before).add(current.id))}
              onChange={() => void refresh(keys.predictions)}
            >
              {left.filter(({ id }) => id !== current.id).length + 1} left
              {queue.data.length === queueLimit ? ` of the newest ${queueLimit}` : ""}
            </Verdict>
          </May>
        </Fragment>
      ) : passed.size > 0 && queue.data.length > 0 ? (
        <p>
          You have seen all that wait. <button type="button" class="link"
            onClick={() => setPassed(new Set())}>Show the skipped ones again</button>
        </p>
      ) : (
        <Empty title="Nothing to validate">
          <p>Predictions appear here as readings come in, once there are models: the first are trained below.</p>
        </Empty>
      )}
    </section>
  );
}

const verdicts = [{ feedback: "ok", name: "Right", key: "o" },
  { feedback: "not_ok", name: "Wrong", key: "n" }] as const;
type Feedback = (typeof verdicts)[number]["feedback"];

/** Buttons and keys for a verdict on the prediction above them, and on no other. */
function Verdict({ prediction, children, onNext, onChange }: {
  prediction: Prediction; children: ComponentChildren; onNext: () => void; onChange: () => void;
}) {
  const keyed = preferences.get().singleKeys;
  const [sending, setSending] = useState(false);
  const [error, setError] = useState<unknown>(null);
  // The button that was pressed too late, its text since then, and the reason.
  const [late, setLate] = useState<{ feedback: Feedback; label: string; why: string } | null>(null);

  const judge = async (feedback: Feedback) => {
    if (sending || late) return;
    setSending(true);
    setError(null);
    const params = { path: { id: prediction.id } };
    try {
      const { feedback: given } = await unwrap(api.GET("/api/v1/prediction-feedback/{id}", { params }));
      if (given) {
        const label = `Already judged ${given === "ok" ? "right" : "wrong"}`;
        setLate({ feedback, label, why: "It was judged in another window. That verdict stays, yours was not stored." });
      } else {
        await unwrap(api.PUT("/api/v1/prediction-feedback/{id}", { params, body: { feedback } }));
        onNext();
      }
      onChange();
    } catch (refused) {
      if (refused instanceof ApiError && refused.status === 404) {
        setLate({
          feedback, label: "Gone",
          why: "This prediction is gone: another of its day took its place, or its sensor was deleted. " +
            "Your verdict was not stored.",
        });
        onChange();
      } else {
        setError(refused);
      }
    }
    setSending(false);
  };

  // Before the user sees the prediction, not after.
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (!preferences.get().singleKeys || event.ctrlKey || event.metaKey || event.altKey || event.repeat
        || document.querySelector("dialog[open]") || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
      const verdict = verdicts.find(({ key }) => key === event.key);
      if (verdict) void judge(verdict.feedback);
      else if (event.key === "s" && !sending) onNext();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });

  // aria-disabled only: a disabled button would lose the focus.
  return (
    <>
      {late && <p class="error" role="alert">{late.why}</p>}
      {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
      <div class="actions verdicts">
        {verdicts.map(({ feedback, name, key }) => (
          <button
            key={key} type="button" class={feedback === "ok" ? "primary" : undefined}
            aria-disabled={sending || late !== null} onClick={() => void judge(feedback)}
          >
            {late?.feedback === feedback ? late.label : <>{name}{keyed && <kbd>{key}</kbd>}</>}
          </button>
        ))}
        <button type="button" class="quiet" aria-disabled={sending} onClick={() => { if (!sending) onNext(); }}>
          {late ? "Next" : "Skip"}{keyed && <kbd>s</kbd>}
        </button>
        <span class="hint" aria-live="polite">{children}</span>
      </div>
    </>
  );
}

const before = 45 * 60_000;
const after = 15 * 60_000;

function PredictionView({ prediction }: { prediction: Prediction }) {
  const at = Date.parse(prediction.timestamp);
  const start = at - before;
  const end = at + after;
  const context = useHistory(prediction.sensor_id, start, end, 240);
  const sensor = useOverview().data?.sensors.find(({ id }) => id === prediction.sensor_id);
  const columns = useMemo(() => {
    const found = context.data ?? [];
    const gap = gapOf(found, (end - start) / 240_000, sensor?.interval_s);
    return { temperature: columnsOf(found, "temperature", gap), humidity: columnsOf(found, "humidity", gap) };
  }, [context.data, start, end, sensor?.interval_s]);
  const { data: limits } = useThresholds();
  const limitOf = (limit: number | undefined) =>
    (limit === undefined ? [] : [{ limit, direction: "above", severity: "critical" } as const]);
  const drawn = useMemo(
    () => ({ temperature: limitOf(limits?.max_temperature), humidity: limitOf(limits?.max_humidity) }), [limits],
  );
  // Some nodes measure temperatures alone.
  const damp = prediction.predicted_humidity !== null || prediction.actual_humidity !== null;
  const shared = { start: start / 1000, end: end / 1000, marked: at / 1000 };
  return (
    <>
      <p>
        <span class={`badge ${prediction.anomaly_predicted ? "alert" : "online"}`}>
          <StatusMark kind={prediction.anomaly_predicted ? "alert" : "ok"} />
          {prediction.anomaly_predicted ? "Judged an anomaly" : "Judged normal"}
          {prediction.score !== null && `, score ${prediction.score.toFixed(2)}`}
        </span>{" "}
        <Link href={`/sensors/${encodeURIComponent(prediction.sensor_id)}`}>
          {sensor?.name ?? prediction.sensor_id}
        </Link>, <Timestamp at={at} />
      </p>
      <div class="scroll" tabIndex={0} role="group" aria-label="Forecast against actual">
        <table>
          <thead><tr>
            <th scope="col">&nbsp;</th><th scope="col">Forecast</th><th scope="col">Actual</th>
            <th scope="col">Off by</th>
          </tr></thead>
          <tbody>
            <Compared name="Temperature" unit="°C" forecast={prediction.predicted_temp}
              actual={prediction.actual_temp} />
            {damp && <Compared name="Humidity" unit="%" forecast={prediction.predicted_humidity}
              actual={prediction.actual_humidity} />}
          </tbody>
        </table>
      </div>
      {context.error && <Failure error={context.error} retry={() => void context.refetch()} />}
      {context.data && context.data.length > 0 && (
        <Charts>{(Chart) => (
          <div class="pair">
            <Chart {...shared} label="Temperature" unit="°C" colour="--temperature" columns={columns.temperature}
              limits={drawn.temperature} />
            {damp && <Chart {...shared} label="Humidity" unit="%" colour="--humidity" columns={columns.humidity}
              limits={drawn.humidity} />}
          </div>
        )}</Charts>
      )}
    </>
  );
}

function Compared({ name, unit, forecast, actual }: {
  name: string; unit: string; forecast: number | null; actual: number | null;
}) {
  const off = forecast === null || actual === null ? null : actual - forecast;
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>{forecast === null ? "none" : withUnit(forecast, unit)}</td>
      <td>{withUnit(actual, unit)}</td>
      <td>{off === null ? "–" : `${off > 0 ? "+" : ""}${withUnit(off, unit, true)}`}</td>
    </tr>
  );
}
