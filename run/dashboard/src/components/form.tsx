import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { lastInput } from "../logic/maintenance";
import { Action, useOnce } from "./action";
import { StatusMark } from "./states";

/** Chromium drops what no number of its own language has: 325 would be left of 32,5, 5 of the page's own −5, and
 * nothing of Arabic-Indic or Persian digits. */
function insertNumber(event: InputEvent): void {
  const number = event.data?.replace(/[,٫]/, ".").replace("−", "-")
    .replace(/[٠-٩۰-۹]/g, (digit) => String(digit.charCodeAt(0) % 16));
  if (!number || number === event.data) return;
  event.preventDefault();
  document.execCommand("insertText", false, number);
}

/** A labelled input. Screen readers read its hint or its error with it. */
export function Field(props: {
  label: string; name: string; value: string; onInput: (value: string) => void;
  type?: string; hint?: string; error?: string | null; autoComplete?: string; required?: boolean;
  maxLength?: number; min?: string; max?: string; step?: string; readOnly?: boolean; autoFocus?: boolean;
  /** The id of a datalist. */ list?: string; placeholder?: string;
}) {
  const id = useId();
  const { label, hint, error, onInput, ...input } = props;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id} aria-describedby={hint || error ? `${id}-hint` : undefined} aria-invalid={error ? true : undefined}
        onInput={(event) => onInput(event.currentTarget.value)} required={props.required ?? true}
        max={input.type === "datetime-local" ? lastInput : undefined} {...input}
        onBeforeInput={input.type === "number" ? insertNumber : undefined}
      />
      {(error || hint) && <p id={`${id}-hint`} class={error ? "error" : "hint"}>{error || hint}</p>}
    </div>
  );
}

/** A labelled choice. Its options are those of a native select, which every phone and screen reader knows. */
export function Select<T extends string | number>(props: {
  label: string; value: T; options: readonly (readonly [value: T, name: string])[]; onChange: (value: T) => void;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select id={id} value={props.value} onChange={(event) => {
        const chosen = props.options[event.currentTarget.selectedIndex];
        if (chosen) props.onChange(chosen[0]);
      }}>
        {props.options.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
      </select>
    </div>
  );
}

/** A form that shows the error of the API, and cannot be submitted twice at once. */
export function Form(props: {
  action: string; busyText?: string; onSubmit: () => Promise<unknown>; onCancel?: () => void;
  children: ComponentChildren;
}) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const submit = useOnce(async () => {
    setBusy(true);
    setError(null);
    try {
      await props.onSubmit();
    } catch (refused) {
      setError(refused);
    } finally {
      setBusy(false);
    }
  });
  return (
    <form onSubmit={(event) => { event.preventDefault(); void submit(); }}>
      {props.children}
      {error !== null && <p class="error" role="alert"><StatusMark kind="alert" /> {messageOf(error)}</p>}
      {/* Of the whole form, screen readers would not tell what it says in the end. */}
      <div class="actions" aria-busy={busy}>
        {/* Disabled, it would lose the focus. */}
        <button class="primary" aria-disabled={busy}>{busy ? (props.busyText ?? "One moment…") : props.action}</button>
        {props.onCancel && <Action waits={busy && "One moment…"} onClick={props.onCancel}>Cancel</Action>}
      </div>
    </form>
  );
}
