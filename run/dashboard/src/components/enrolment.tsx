// Adds a gateway, and shows the command that enrols it until it is used: in the browser that made
// it, because the service keeps no code that it could show.
import { useState } from "preact/hooks";
import { api, unwrap, type Gateway } from "../api/client";
import { keys, refresh } from "../api/queries";
import { session } from "../api/session";
import { Stored } from "../api/storage";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";
import { Secret } from "./secret";

const stored = new Stored("sessionStorage", "coldaisle.enrolment");
const codes = (): Record<string, string> => {
  try {
    return JSON.parse(stored.get() ?? "{}") as Record<string, string>;
  } catch {
    return {};
  }
};
session.subscribe(() => { if (session.get() === null) stored.set(null); });

const commandOf = (code: string) => `monitor-gateway enrol ${code} --api ${location.origin}`;

/** The command of a gateway whose code waits; of one that another browser made, what can be done. */
export function EnrolmentCommand({ gateway: { id, name } }: { gateway: Gateway }) {
  const code = codes()[id];
  return (
    <div class="card">
      <p>Run this on the machine of {name}. Its code is valid for 24 hours, once.</p>
      {code
        ? <pre tabIndex={0}><code>{commandOf(code)}</code></pre>
        : <p class="hint">
          Its code was made in another window, and only that one can show it. Revoke the gateway and add it again for a
          new one.
        </p>}
    </div>
  );
}

export function AddGateway({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [code, setCode] = useState<string | null>(null);
  if (code !== null) {
    return (
      <Secret title={`Enrol ${name}`} text={commandOf(code)} onClose={onClose}>
        <p>Run this on the gateway's machine within 24 hours. It stays in Setup, in this window, until it is used.</p>
      </Secret>
    );
  }
  return (
    <Dialog title="Add gateway" onClose={onClose}>
      <Form
        action="Add gateway" onCancel={onClose}
        onSubmit={async () => {
          const created = await unwrap(api.POST("/api/v1/gateways", { body: { name } }));
          stored.set(JSON.stringify({ ...codes(), [created.id]: created.enrolment_code }));
          setCode(created.enrolment_code);
          await refresh(keys.gateways);
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={80}
          hint="Where it stands, for example “Basement”." autoFocus />
      </Form>
    </Dialog>
  );
}
