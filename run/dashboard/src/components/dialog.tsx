import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { Action } from "./action";
import { onBack } from "./back";

/** The first that can have the focus. */
const stops = "button:not(:disabled), a[href], input, select";

/** Fields of what would have to be typed again. */
const typing = "input:not([type=checkbox], [type=radio], [type=password]), textarea";

/** The listeners of the dialogs that are shown, the topmost last: wherever the focus is, a key is theirs. */
const shown: ((event: KeyboardEvent) => void)[] = [];

/**
 * A modal dialog. The browser keeps the focus inside and gives it back afterwards: if what
 * had it is gone, its row has it, or the page. Without onClose neither Escape nor a press
 * outside nor Back closes it, and neither Escape nor Back drops what was typed.
 */
export function Dialog(props: { title: string; onClose?: () => void; wide?: boolean; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  const typed = useRef(false);
  // There is none any more where the session ends meanwhile.
  const onClose = useRef(props.onClose);
  onClose.current = props.onClose;
  const [kept, setKept] = useState(false);
  const escape = (event: Event) => {
    event.preventDefault();
    event.stopPropagation();
    // What is on its way ends here.
    if (dialog.current?.querySelector("[aria-busy=true]")) return;
    if (typed.current) setKept(true);
    else if (onClose.current && dialog.current) {
      // The press is seen first: without the dialog every element behind it is styled anew.
      dialog.current.style.visibility = "hidden";
      requestAnimationFrame(() => setTimeout(() => onClose.current?.()));
    }
  };
  useEffect(() => {
    const element = dialog.current;
    const row = document.activeElement?.closest("tr, li");
    const address = location.href;
    // The browser lets a page refuse the first Escape only as a cancellation, and every one as a key.
    const press = (event: KeyboardEvent) => {
      if (event.key === "Escape" && shown.at(-1) === press) escape(event);
    };
    shown.push(press);
    document.addEventListener("keydown", press);
    // The page before is there already: this one is put on top of it.
    const back = (event: Event) => {
      if (!typed.current && onClose.current) return;
      event.stopImmediatePropagation();
      history.pushState(null, "", address);
      setKept(true);
    };
    onBack.add(back);
    const leave = (event: Event) => typed.current && event.preventDefault();
    addEventListener("beforeunload", leave);
    if (element && !element.open) element.showModal();
    return () => {
      document.removeEventListener("keydown", press);
      onBack.delete(back);
      removeEventListener("beforeunload", leave);
      shown.splice(shown.indexOf(press), 1);
      element?.close();
      const active = document.activeElement;
      if (active !== document.body && !element?.contains(active)) return;
      const next = row?.isConnected ? row.querySelector<HTMLElement>(stops) : null;
      (next ?? document.getElementById("main"))?.focus({ preventScroll: true });
    };
  }, []);
  return (
    <dialog
      ref={dialog} class={props.wide ? "wide" : undefined} aria-labelledby={title}
      onInput={({ target }) => { if (target instanceof HTMLElement && target.matches(typing)) typed.current = true; }}
      onCancel={escape}
    >
      <h2 id={title}>{props.title}</h2>
      {props.children}
      {kept && props.onClose && <p class="hint" role="status">What you typed is kept. Cancel discards it.</p>}
    </dialog>
  );
}

/** Asks the user to confirm what cannot be undone. */
export function Confirm(props: {
  title: string; action: string; onConfirm: () => Promise<void>; onClose: () => void; children: ComponentChildren;
}) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const waits = busy && "One moment…";
  const confirm = () => {
    setBusy(true);
    return props.onConfirm().catch(setError).finally(() => setBusy(false));
  };
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      {props.children}
      {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
      <div class="actions" aria-busy={busy}>
        <Action class="danger" waits={waits} onClick={confirm}>{props.action}</Action>
        <Action waits={waits} onClick={props.onClose}>Cancel</Action>
      </div>
    </Dialog>
  );
}
