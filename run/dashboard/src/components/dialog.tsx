import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Action } from "./action";

/** The first that can have the focus. */
const stops = "button:not(:disabled), a[href], input, select";

/**
 * A modal dialog. The browser keeps the focus inside and gives it back afterwards: if what
 * had it is gone, its row has it, or the page.
 */
export function Dialog(props: { title: string; onClose?: () => void; wide?: boolean; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    const element = dialog.current;
    const row = document.activeElement?.closest("tr, li");
    if (element && !element.open) element.showModal();
    return () => {
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
      onCancel={(event) => {
        event.preventDefault();
        props.onClose?.();
      }}
    >
      <h2 id={title}>{props.title}</h2>
      {props.children}
    </dialog>
  );
}

/** Asks the user to confirm what cannot be undone. */
export function Confirm(props: {
  title: string; action: string; busy: boolean; onConfirm: () => void; onClose: () => void; children: ComponentChildren;
}) {
  const busy = props.busy && "One moment…";
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      {props.children}
      <div class="actions">
        <Action class="danger" waits={busy} onClick={props.onConfirm}>{props.action}</Action>
        <Action waits={busy} onClick={props.onClose}>Cancel</Action>
      </div>
    </Dialog>
  );
}
