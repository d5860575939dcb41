// How many false alarms of learning the customer stands.
import { useQuery, useQueryClient } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { api, unwrap } from "../api/client";
import { keys } from "../api/queries";
import { Field, Form } from "./form";
import { Failure, Loading } from "./states";

export function FalseAlarms() {
  const { data, error, refetch } = useQuery({
    queryKey: keys.learning, queryFn: () => unwrap(api.GET("/api/v1/ml/settings")),
  });
  return (
    <section class="card" aria-labelledby="false-alarms">
      <h2 id="false-alarms">False alarms of learning</h2>
      <p>Learning reports readings that are unlike earlier ones and unlike those of other sensors. Sometimes it does so
        although nothing is wrong.</p>
      {data ? <Budget stood={data.false_alarms_per_month} />
        : error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="the setting" />}
    </section>
  );
}

function Budget({ stood }: { stood: number }) {
  const queries = useQueryClient();
  const [value, setValue] = useState(String(stood));
  const [saved, setSaved] = useState(false);
  const few = Number(value) < 1;
  return (
    <Form
      action="Save"
      onSubmit={async () => {
        setSaved(false);
        queries.setQueryData(keys.learning,
          await unwrap(api.PUT("/api/v1/ml/settings", { body: { false_alarms_per_month: Number(value) } })));
        setSaved(true);
      }}
    >
      <Field
        label="False alarms you accept, per sensor and month" name="false_alarms" type="number" min="0.3"
        max="30" step="any" value={value}
        onInput={(typed) => { setValue(typed); setSaved(false); }}
        hint={`From 0.3 to 30; 1 is usual. With fewer, less is found, and `
          + `later.${few ? " Alarms rarer than one a month are estimated, not counted." : ""}`}
      />
      <p class="hint" aria-live="polite">{saved && "Saved. Detection follows within 15 seconds."}</p>
    </Form>
  );
}
