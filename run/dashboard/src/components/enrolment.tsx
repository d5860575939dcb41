// Adds a gateway, and shows the command that enrols it.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "preact/hooks";
import { api, unwrap } from "../api/client";
import { keys } from "../api/queries";
import { Dialog } from "./dialog";
import { Field, Form } from "./form";

export function AddGateway({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [code, setCode] = useState<string | null>(null);
  const [copied, setCopied] = useState(false);
  const queries = useQueryClient();
  if (code !== null) {
    const command = `monitor-gateway enrol ${code} --api ${location.origin}`;
    return (
      <Dialog title={`Enrol ${name}`}>
        <p>Run this on the gateway's machine within 24 hours. The code <strong>{code}</strong> is not shown again.</p>
        <pre><code>{command}</code></pre>
        <div class="actions">
          <button type="button" onClick={() => { navigator.clipboard.writeText(command).then(() => setCopied(true), () => undefined); }}>Copy</button>
          <button type="button" class="primary" onClick={onClose}>Done</button>
          <span role="status" class="good-text">{copied && "Copied."}</span>
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title="Add gateway" onClose={onClose}>
      <Form
        action="Add gateway" onCancel={onClose}
        onSubmit={async () => {
          const created = await unwrap(api.POST("/api/v1/gateways", { body: { name } }));
          setCode(created.enrolment_code);
          await queries.invalidateQueries({ queryKey: keys.gateways });
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={80} hint="Where it stands, for example “Basement”." autoFocus />
      </Form>
    </Dialog>
  );
}
