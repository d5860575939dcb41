// Sets of limits that are applied with one click, and what they would have told.
import { useState } from "preact/hooks";
import { api, unwrap } from "../api/client";
import { keys, refresh, usePresets, useThresholds } from "../api/queries";
import { decimal, inWords, withUnit } from "../logic/format";
import { condition, presetNames } from "../logic/rules";
import { Form, Select } from "./form";
import { RulePreview } from "./preview";
import { everywhere, ScopeField, scopeOf } from "./scope";
import { Failure, Loading } from "./states";

export function Presets() {
  const { data, error, refetch } = usePresets();
  const { data: thresholds } = useThresholds();
  const [scope, setScope] = useState(everywhere);
  const [chosen, setChosen] = useState("ashrae_recommended");
  const [done, setDone] = useState<string | null>(null);
  if (error) return <Failure error={error} retry={() => void refetch()} />;
  if (!data) return <Loading what="presets" />;
  const preset = data.find((candidate) => candidate.preset === chosen);
  const named = (name: string) => presetNames[name]?.name ?? name;
  const options = data.map(({ preset: name }) =>
    [name, `${named(name)}: ${inWords(presetNames[name]?.note ?? "")}`] as const);
  return (
    <section class="card" aria-labelledby="presets">
      <h2 id="presets">Presets</h2>
      <p>
        Limits at the inlet of the equipment by ASHRAE TC 9.9, Thermal Guidelines (2021).
        {thresholds && ` Your thresholds of ${withUnit(thresholds.max_temperature)} and `
          + `${decimal(thresholds.max_humidity)} % stay in force beside them.`}
      </p>
      <Form
        action="Add these rules"
        onSubmit={async () => {
          setDone(null);
          await unwrap(
            api.POST("/api/v1/rules/preset", { body: { preset: chosen as "ashrae_recommended", ...scopeOf(scope) } }),
          );
          await refresh(keys.live);
          setDone(`The rules of “${named(chosen)}” are in force.`);
        }}
      >
        <Select label="Preset" value={chosen}
          onChange={(name) => { setChosen(name); setDone(null); }} options={options} />
        <ScopeField scope={scope} onChange={(next) => { setScope(next); setDone(null); }} />
        {preset && <>
          <ul class="plain">{preset.rules
            .map((rule) => <li key={condition(rule)}>{condition(rule)} <small>{rule.severity}</small></li>)}</ul>
          <RulePreview rules={preset.rules.map((rule) => ({ ...rule, ...scopeOf(scope) }))} />
        </>}
        {done && <p role="status" class="good-text">{done}</p>}
      </Form>
    </section>
  );
}
