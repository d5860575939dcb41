// The corrections of a sensor, with forms to add and to withdraw one.
import { useQuery } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { refresh } from "../api/queries";
import { api, unwrap, type Correction, type Sensor } from "../api/client";
import { serviceTime } from "../api/time";
import { shownZone } from "../logic/format";
import { clocksChange, inputInstant, inputValue, lastDay } from "../logic/maintenance";
import { Confirm, Dialog } from "./dialog";
import { Field, Form } from "./form";
import { May } from "./may";
import { Failure, Loading, StatusMark } from "./states";
import { Timestamp } from "./timestamp";

const states = { planned: "Planned", in_force: "In force", past: "Past", withdrawn: "Withdrawn" } as const;

/** What is added to a measured value, with its sign. Offsets are differences:
 * they are in °C whatever the page shows. */
const offset = (value: number, unit: string) =>
  `${value > 0 ? "+" : value < 0 ? "−" : "±"}${Math.abs(value).toFixed(2)} ${unit}`;

/** A fold: open where a certificate is overdue. */
export function Calibration({ sensor }: { sensor: Sensor }) {
  const [open, setOpen] = useState(sensor.calibration_overdue);
  const summary = sensor.calibration_due ? `due ${sensor.calibration_due}` : "no certificate";
  return (
    <details class="card compare" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Calibration <small>
          {sensor.calibration_overdue ? <><StatusMark kind="alert" /> overdue since {sensor.calibration_due}</>
            : summary}
        </small>
      </summary>
      {open && <Corrections sensor={sensor} />}
    </details>
  );
}

const keyOf = (sensor: Sensor) => ["corrections", sensor.id];

function Corrections({ sensor }: { sensor: Sensor }) {
  const { data, error, refetch } = useQuery({
    queryKey: keyOf(sensor),
    queryFn: () => unwrap(api.GET("/api/v1/corrections", { params: { query: { sensor_id: sensor.id } } })),
  });
  const [adding, setAdding] = useState(false);
  const [withdrawing, setWithdrawing] = useState<Correction | null>(null);
  if (!data) return error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="corrections" />;
  return (
    <>
      <p class="hint">
        A correction is added to each reading from its time on. What was stored before stays as it is, and measured
        values are kept.
      </p>
      {data.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Corrections">
          <table>
            <thead>
              <tr>
                <th scope="col">From</th><th scope="col">Temperature</th><th scope="col">Humidity</th>
                <th scope="col">Certificate</th>
                <th scope="col">Due</th><th scope="col">Added by</th><th scope="col">State</th>
                <th scope="col"><span class="unseen">Actions</span></th>
              </tr>
            </thead>
            <tbody>
              {data.map((one) => (
                <tr key={one.id}>
                  <th scope="row"><Timestamp at={one.from} /></th>
                  <td>{offset(one.temperature_offset, "°C")}</td><td>{offset(one.humidity_offset, "%")}</td>
                  <td class="wraps">
                    {one.certificate ?? "–"}
                    {one.serial_number && <small> Serial number {one.serial_number}</small>}
                    {one.calibrated_by && <small> By {one.calibrated_by}</small>}
                  </td>
                  <td>{one.due_date ?? "–"}{one.overdue && <small><StatusMark kind="alert" /> Overdue</small>}</td>
                  <td class="wraps">
                    {one.added_by}{one.withdrawn_by && <small>Withdrawn by {one.withdrawn_by}</small>}
                  </td>
                  <td>{states[one.state]}</td>
                  <td>{one.withdrawable && <May role="admin">
                    <button type="button" onClick={() => setWithdrawing(one)}>Withdraw</button>
                  </May>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <May role="admin"><button type="button" onClick={() => setAdding(true)}>Add correction</button></May>
      {adding && <Add sensor={sensor} onClose={() => setAdding(false)} />}
      {withdrawing && <Withdraw sensor={sensor} correction={withdrawing} onClose={() => setWithdrawing(null)} />}
    </>
  );
}

function Add({ sensor, onClose }: { sensor: Sensor; onClose: () => void }) {
  const zone = shownZone();
  // A minute or two to fill in the form are left.
  const [soon] = useState(() => serviceTime() + 15 * 60_000);
  const [from, setFrom] = useState(() => inputValue(soon, zone));
  const [temperature, setTemperature] = useState("0");
  const [humidity, setHumidity] = useState("0");
  const [texts, setTexts] = useState({ certificate: "", serial_number: "", due_date: "", calibrated_by: "" });
  const text = (name: keyof typeof texts) =>
    ({ name, value: texts[name], onInput: (value: string) => setTexts({ ...texts, [name]: value }), required: false });
  return (
    <Dialog title={`Correct ${sensor.name}`} onClose={onClose}>
      <Form
        action="Add correction" onCancel={onClose}
        onSubmit={async () => {
          const given = Object.fromEntries(Object.entries(texts).filter(([, value]) => value !== ""));
          await unwrap(api.POST("/api/v1/corrections", {
            body: {
              sensor_id: sensor.id, from: inputInstant(from, zone, soon),
              temperature_offset: Number(temperature),
              humidity_offset: Number(humidity), ...given,
            },
          }));
          await refresh(keyOf(sensor));
          onClose();
        }}
      >
        <Field label="From" name="from" type="datetime-local" value={from} onInput={setFrom}
          hint={clocksChange(from, zone, soon) ?? "At least five minutes ahead."} autoFocus />
        <Field label="Temperature offset in °C" name="temperature_offset" type="number" min="-10" max="10" step="0.01"
          value={temperature} onInput={setTemperature} hint="What is added to each measured value." />
        <Field label="Humidity offset in %" name="humidity_offset" type="number" min="-30" max="30" step="0.01"
          value={humidity} onInput={setHumidity} />
        <Field label="Certificate" maxLength={200} {...text("certificate")} />
        <Field label="Serial number" maxLength={80} {...text("serial_number")} />
        <Field label="Calibrated by" maxLength={80} {...text("calibrated_by")} />
        <Field label="Next calibration due" type="date" max={lastDay} {...text("due_date")} />
      </Form>
    </Dialog>
  );
}

function Withdraw({ sensor, correction, onClose }: { sensor: Sensor; correction: Correction; onClose: () => void }) {
  const withdraw = async () => {
    await unwrap(
      api.DELETE("/api/v1/corrections/{correction_id}", { params: { path: { correction_id: correction.id } } }),
    );
    await refresh(keyOf(sensor));
    onClose();
  };
  return (
    <Confirm title="Withdraw the correction?" action="Withdraw" onConfirm={withdraw} onClose={onClose}>
      <p>No reading will be corrected by it. It stays in the list.</p>
    </Confirm>
  );
}
