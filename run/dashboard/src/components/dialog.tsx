import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

/** A modal dialog. The browser keeps the focus inside and restores it afterwards. */
export function Dialog(props: { title: string; onClose?: () => void; wide?: boolean; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    const element = dialog.current;
    if (element && !element.open) element.showModal();
    return () => element?.close();
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
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      {props.children}
      <div class="actions">
        <button type="button" class="danger" disabled={props.busy} onClick={props.onConfirm}>{props.action}</button>
        <button type="button" disabled={props.busy} onClick={props.onClose}>Cancel</button>
      </div>
    </Dialog>
  );
}
