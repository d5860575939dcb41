// The rules that make excursions, presets of them, and what they would have told.
import { useEffect, useRef, useState } from "preact/hooks";
import { useSearchParams } from "wouter-preact";
import { api, ApiError, unwrap } from "../api/client";
import { keys, refresh, useOverview, useRooms, useRules } from "../api/queries";
import { humidityLimitHint, temperatureLimitHint } from "../logic/climate";
import { clearing, condition, quantities, type Quantity, type Rule, type RuleChange } from "../logic/rules";
import { fromUnit, inUnit, unitName } from "../logic/format";
import { Confirm, Dialog } from "../components/dialog";
import { Field, Form, Select } from "../components/form";
import { May } from "../components/may";
import { Presets } from "../components/presets";
import { RulePreview } from "../components/preview";
import { ScopeField, ScopeName, scopeOf, type ChosenScope } from "../components/scope";
import { Failure, Loading, StatusMark } from "../components/states";
import { useTitle } from "../components/title";

export default function RulesPage() {
  useTitle("Rules");
  const { data, error, refetch } = useRules();
  const [editing, setEditing] = useState<Rule | "new" | null>(null);
  const [deleting, setDeleting] = useState<Rule | null>(null);
  return (
    <>
      <div class="heading">
        <h1>Rules</h1>
        <May role="admin">
          <button type="button" class="primary" onClick={() => setEditing("new")}>Add rule</button>
        </May>
      </div>
      <p class="lead">
        A value beyond the limit of a rule is an excursion. The excursions of one room and cause are one incident. A
        change is in force within 15 seconds.
      </p>
      {error && <Failure error={error} retry={() => void refetch()} />}
      {!data && !error && <Loading what="rules" />}
      {data && <RuleTable rules={data} onEdit={setEditing} onDelete={setDeleting} />}
      <May role="admin"><Presets /></May>
      {editing === "new" && <RuleForm rule={undefined} onClose={() => setEditing(null)} />}
      {editing && editing !== "new" && <RuleForm key={editing.version} rule={editing} onClose={() => setEditing(null)}
        reload={async () => setEditing((await refetch()).data?.find(({ id }) => id === editing.id) ?? null)} />}
      {deleting && <DeleteRule rule={deleting} onClose={() => setDeleting(null)} />}
    </>
  );
}

/** Rules by where they apply: everywhere first, then by room. */
function RuleTable({ rules, onEdit, onDelete }: {
  rules: readonly Rule[]; onEdit: (rule: Rule) => void; onDelete: (rule: Rule) => void;
}) {
  const { data: overview } = useOverview();
  const rooms = useRooms();
  const roomOf = ({ room_id, sensor_id }: Rule) =>
    room_id ?? overview?.sensors.find(({ id }) => id === sensor_id)?.room_id ?? (sensor_id === null ? 0 : -1);
  const known = new Map([[0, "All sensors"], ...(rooms.data ?? []).map(({ id, name }) => [id, name] as const),
    [-1, overview ? "Sensors that are gone" : "Single sensors"]]);
  // A rule is listed though its room is not known here: it is in force.
  const groups = [...new Set([...known.keys(), ...rules.map(roomOf)])]
    .map((id) => ({ id, name: known.get(id) ?? `Room ${id}`, rules: rules.filter((rule) => roomOf(rule) === id) }))
    .filter((group) => group.rules.length > 0);
  return (
    <section class="card" aria-label="Rules in force">
      <div class="scroll" tabIndex={0} role="group" aria-label="Rules in force">
        <table class="rules">
          <thead>
            <tr>
              <th scope="col">Excursion when</th><th scope="col">Over when</th><th scope="col">For</th>
              <th scope="col">Severity</th><th scope="col"><span class="unseen">Actions</span></th>
            </tr>
          </thead>
          {groups.map((group) => (
            <tbody key={group.id}>
              <tr class="room-row"><th scope="rowgroup" colSpan={5}><h2>{group.name}</h2></th></tr>
              {group.rules.map((rule) =>
                <RuleRow key={rule.id} rule={rule} rules={rules} onEdit={onEdit} onDelete={onDelete} />)}
            </tbody>
          ))}
        </table>
      </div>
    </section>
  );
}

const whys: Record<NonNullable<Rule["conflicts"]>[number]["why"], string> = {
  always_broken: "Every value breaks this one or",
  warns_too_late: "Of this one and the next the warning comes too late:",
  same_conditions: "Differs in the limit alone from",
};

function RuleRow({ rule, rules, onEdit, onDelete }: {
  rule: Rule; rules: readonly Rule[]; onEdit: (rule: Rule) => void; onDelete: (rule: Rule) => void;
}) {
  const other = (id: number) => rules.find((candidate) => candidate.id === id);
  const [search] = useSearchParams();
  const named = search.get("rule") === String(rule.id);
  const row = useRef<HTMLTableRowElement>(null);
  useEffect(() => {
    if (named) row.current?.focus();
  }, [named]);
  return (
    <tr ref={row} class={rule.enabled ? "" : "off"} tabIndex={named ? -1 : undefined}>
      <th scope="row">
        {condition(rule)}
        {rule.threshold && <small>Threshold: raises the specified alerts</small>}
        {!rule.enabled && <small>Switched off</small>}
        {rule.unmeasured && <small>
          Judges nothing: none of its sensors measures {quantities[rule.quantity].name.toLowerCase()}
        </small>}
        {rule.conflicts?.map(({ rule_id, why }) => {
          const found = other(rule_id);
          return found && <small key={rule_id} class="warning">
            <StatusMark kind="alert" /> {whys[why]} “{condition(found)}”, <ScopeName scope={found} />
          </small>;
        })}
      </th>
      <td>{clearing(rule)}</td><td><ScopeName scope={rule} /></td><td class={rule.severity}>{rule.severity}</td>
      <td>
        <May role="admin"><div class="actions">
          <button type="button" class="quiet" onClick={() => onEdit(rule)}>
            Change<span class="unseen"> {condition(rule)}</span>
          </button>
          {!rule.threshold && (
            <button type="button" class="quiet" onClick={() => onDelete(rule)}>
              Delete<span class="unseen"> {condition(rule)}</span>
            </button>
          )}
        </div></May>
      </td>
    </tr>
  );
}

const quantityOptions = () => Object.entries(quantities)
  .map(([value, { name, unit }]) => [value as Quantity, `${name}, ${unitName(unit)}`] as const);
const shownNumber = (value: number, quantity: Quantity, difference?: boolean) =>
  String(Number(inUnit(value, quantities[quantity].unit, difference).toFixed(2)));

/** Seconds, to a thousandth, survive the way to minutes and back. */
const minutes = (seconds: number) => String(Number((seconds / 60).toFixed(6)));
const inSeconds = (shown: string) => Number((Number(shown) * 60).toFixed(3));

function RuleForm({ rule, onClose, reload }: {
  rule: Rule | undefined; onClose: () => void; reload?: () => Promise<void>;
}) {
  const [old, setOld] = useState(false);
  const [quantity, setQuantity] = useState<Quantity>(rule?.quantity ?? "temperature");
  const [direction, setDirection] = useState(rule?.direction ?? "above");
  const [severity, setSeverity] = useState(rule?.severity ?? "warning");
  const [limit, setLimit] = useState(() => shownNumber(rule?.limit ?? 27, quantity));
  const [held, setHeld] = useState(minutes(rule?.for_s ?? 120));
  const [margin, setMargin] = useState(() => shownNumber(rule?.clear_margin ?? 0.5, quantity, true));
  const [clear, setClear] = useState(minutes(rule?.clear_for_s ?? 120));
  const [enabled, setEnabled] = useState(rule?.enabled ?? true);
  const [scope, setScope] = useState<ChosenScope>({ roomID: rule?.room_id ?? 0, sensorID: rule?.sensor_id ?? "" });
  const change: RuleChange = {
    quantity, direction, severity, limit: fromUnit(Number(limit), quantities[quantity].unit), for_s: inSeconds(held),
    clear_margin: fromUnit(Number(margin), quantities[quantity].unit, true),
    clear_for_s: inSeconds(clear), enabled, ...scopeOf(scope),
  };
  const hint = direction === "below" ? null : quantity === "temperature" ? temperatureLimitHint(change.limit)
    : quantity === "humidity" ? humidityLimitHint(change.limit) : null;
  const unit = unitName(quantities[quantity].unit);
  const fixed = rule?.threshold ?? false;
  return (
    <Dialog title={rule ? "Change rule" : "Add rule"} onClose={onClose} wide>
      <Form
        action={rule ? "Save rule" : "Add rule"} onCancel={onClose}
        onSubmit={async () => {
          await unwrap(rule
            ? api.PUT("/api/v1/rules/{rule_id}", {
              params: { path: { rule_id: rule.id } }, body: { ...change, version: rule.version },
            })
            : api.POST("/api/v1/rules", { body: change })).catch((error: unknown) => {
            setOld(error instanceof ApiError && error.status === 409);
            throw error;
          });
          await refresh(keys.live, keys.thresholds);
          onClose();
        }}
      >
        {fixed ? <p>A threshold holds for all sensors at once and is always on: only its limit can be changed.</p> : (
          <div class="pair">
            <Select label="Quantity" value={quantity} onChange={setQuantity} options={quantityOptions()} />
            <Select label="Side" value={direction} onChange={setDirection}
              options={[["above", "above the limit"], ["below", "below the limit"]]} />
          </div>
        )}
        <div class="pair">
          <Field label={`Limit, ${unit}`} name="limit" type="number" step="any" value={limit} onInput={setLimit}
            hint={hint ?? undefined} autoFocus />
          {!fixed && <Field label="Must hold for, minutes" name="for" type="number" min="0" max="60" step="any"
            value={held} onInput={setHeld} />}
        </div>
        {!fixed && <>
          <div class="pair">
            <Field label={`Over when back by, ${unit}`} name="margin" type="number" min="0" max="50" step="any"
              value={margin} onInput={setMargin} />
            <Field label="and stays there, minutes" name="clear" type="number" min="0" max="60" step="any"
              value={clear} onInput={setClear} />
          </div>
          <ScopeField scope={scope} onChange={setScope} />
          <Select label="Severity" value={severity} onChange={setSeverity}
            options={[["warning", "Warning"], ["critical", "Critical"]]} />
          <label class="check"><input type="checkbox" checked={enabled}
            onChange={(event) => setEnabled(event.currentTarget.checked)} /> Switched on</label>
        </>}
        <RulePreview rules={[change]} replaces={rule?.id} />
        {old && <button type="button" onClick={() => void reload?.()}>Show the changed rule</button>}
        {rule && <p class="hint">Its ongoing excursions end, and begin anew with the next reading.</p>}
      </Form>
    </Dialog>
  );
}

function DeleteRule({ rule, onClose }: { rule: Rule; onClose: () => void }) {
  const remove = async () => {
    await unwrap(api.DELETE("/api/v1/rules/{rule_id}", { params: { path: { rule_id: rule.id } } }));
    await refresh(keys.live);
    onClose();
  };
  return (
    <Confirm title="Delete this rule?" action="Delete rule" onConfirm={remove} onClose={onClose}>
      <p>{condition(rule)}. Its ongoing excursions end; past ones are kept.</p>
    </Confirm>
  );
}
