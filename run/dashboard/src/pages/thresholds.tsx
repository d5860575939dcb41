// The thresholds, and how many alerts other thresholds would have raised.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "preact/hooks";
import { api, unwrap, messageOf, type Thresholds } from "../api/client";
import { history, keys, readings, useAllSensors, useRooms, useThresholds } from "../api/queries";
import { humidityLimitHint, recommended, temperatureLimitHint } from "../logic/climate";
import { count } from "../logic/format";
import { previewSensor, type Counts, type Quantity, type Source } from "../logic/preview";
import { Field, Form } from "../components/form";
import { Timestamp } from "../components/timestamp";
import { Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";

export default function ThresholdsPage() {
  useTitle("Thresholds");
  const { data, error, refetch } = useThresholds();
  return (
    <>
      <h1>Thresholds</h1>
      <p class="lead">A reading strictly above a limit raises an alert. The limits hold for all your sensors.</p>
      {error && <Failure error={error} retry={() => void refetch()} />}
      {!data && !error && <Loading what="thresholds" />}
      {data && <Editor saved={data} />}
      <Recommendation />
    </>
  );
}

function Editor({ saved }: { saved: Thresholds }) {
  const queries = useQueryClient();
  const [temperature, setTemperature] = useState(String(saved.max_temperature));
  const [humidity, setHumidity] = useState(String(saved.max_humidity));
  const [done, setDone] = useState(false);
  const limits = { temperature: Number(temperature), humidity: Number(humidity) };
  return (
    <section class="card">
      <Form
        action="Save thresholds"
        onSubmit={async () => {
          setDone(false);
          const path = { customer_id: saved.customer_id };
          const body = { max_temperature: limits.temperature, max_humidity: limits.humidity };
          queries.setQueryData(keys.thresholds, await unwrap(api.POST("/api/v1/alerts/thresholds/{customer_id}", { params: { path }, body })));
          setDone(true);
        }}
      >
        <div class="pair">
          <Field label="Highest temperature, °C" name="max_temperature" type="number" min="-40" max="125" step="0.1" value={temperature} onInput={setTemperature} hint={temperatureLimitHint(limits.temperature) ?? "Within the recommended range."} />
          <Field label="Highest relative humidity, %" name="max_humidity" type="number" min="0" max="100" step="0.1" value={humidity} onInput={setHumidity} hint={humidityLimitHint(limits.humidity) ?? "Within the recommended range."} />
        </div>
        {done && <p role="status" class="good-text">Saved. Detection uses the new limits within 15 seconds.</p>}
      </Form>
      <Preview limits={limits} />
    </section>
  );
}

type Progress =
  | { state: "idle" }
  | { state: "counting"; done: number }
  | { state: "failed"; error: unknown }
  | { state: "counted"; at: number; limits: Record<Quantity, number>; totals: Record<Quantity, Counts>; sensors: number };

function Preview({ limits }: { limits: Record<Quantity, number> }) {
  const sensors = useAllSensors(useRooms().data);
  const queries = useQueryClient();
  const [progress, setProgress] = useState<Progress>({ state: "idle" });
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);

  const run = async () => {
    abort.current?.abort();
    const controller = (abort.current = new AbortController());
    const { signal } = controller;
    const at = Math.floor(Date.now() / 60_000) * 60_000;
    const source: Source = {
      // Cached for a while: a second threshold then costs only the readings of mixed buckets.
      buckets: (id, span, points) => queries.fetchQuery({
        queryKey: ["preview", id, span.start, span.end], staleTime: 5 * 60_000,
        queryFn: () => history(id, span.start, span.end, points, signal),
      }),
      readings: (id, span) => readings(id, span.start, span.end, signal),
    };
    const totals = { temperature: { week: 0, month: 0 }, humidity: { week: 0, month: 0 } };
    const all = sensors.data ?? [];
    try {
      for (const [done, sensor] of all.entries()) {
        setProgress({ state: "counting", done });
        const counts = await previewSensor(source, sensor.id, at, limits);
        if (signal.aborted) return;
        for (const quantity of ["temperature", "humidity"] as const) {
          totals[quantity].week += counts[quantity].week;
          totals[quantity].month += counts[quantity].month;
        }
      }
      setProgress({ state: "counted", at, limits, totals, sensors: all.length });
    } catch (error) {
      if (!signal.aborted) setProgress({ state: "failed", error });
    }
  };

  return (
    <div class="preview">
      <h2>What would these limits have raised?</h2>
      <button type="button" disabled={!sensors.data || progress.state === "counting"} onClick={() => void run()}>Count past alerts</button>
      <div aria-live="polite">
        {progress.state === "counting" && <p>Counting, sensor {progress.done + 1} of {sensors.data?.length}…</p>}
        {progress.state === "failed" && <p class="error">{messageOf(progress.error)}</p>}
        {progress.state === "counted" && (
          <>
            <table>
              <thead><tr><th scope="col">Limit</th><th scope="col">Last 7 days</th><th scope="col">Last 30 days</th></tr></thead>
              <tbody>
                <tr><th scope="row">{progress.limits.temperature} °C</th><td>{count(progress.totals.temperature.week)} alerts</td><td>{count(progress.totals.temperature.month)} alerts</td></tr>
                <tr><th scope="row">{progress.limits.humidity} %</th><td>{count(progress.totals.humidity.week)} alerts</td><td>{count(progress.totals.humidity.month)} alerts</td></tr>
              </tbody>
            </table>
            <p class="hint">
              An exact count of the readings above each limit, of {progress.sensors} sensors, until <Timestamp at={progress.at} />. One reading is one alert;
              readings that reached the service more than 10 minutes late are counted too, though they raise none.
            </p>
          </>
        )}
      </div>
    </div>
  );
}

function Recommendation() {
  const { temperature, dewPoint, humidity } = recommended;
  return (
    <section class="card" aria-labelledby="ashrae">
      <h2 id="ashrae">What is recommended</h2>
      <p>ASHRAE TC 9.9 (2021), at the inlet of the equipment:</p>
      <ul>
        <li>Temperature {temperature.low} to {temperature.high} °C</li>
        <li>Dew point −{Math.abs(dewPoint.low)} to {dewPoint.high} °C</li>
        <li>Relative humidity up to {humidity.high} %, or {humidity.highWithCorrosiveGases} % where corrosive gases are present</li>
      </ul>
      <p class="hint">The service's default of 50 °C is above every class of equipment: set your own.</p>
    </section>
  );
}
