// What a page shows instead of its content while it loads, when there is none, and after an error.
import { Component, type ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { messageOf } from "../api/client";
import { markReloaded } from "../api/release";

export function Loading({ what }: { what: string }) {
  return <p class="loading" role="status">Loading {what}…</p>;
}

/** Of what may go while it has the focus: the page has it then. */
export function useLeaving<T extends HTMLElement>() {
  const element = useRef<T>(null);
  useLayoutEffect(() => () => {
    if (element.current?.contains(document.activeElement)) {
      document.getElementById("main")?.focus({ preventScroll: true });
    }
  }, []);
  return element;
}

/** An error, with a button to try again. */
export function Notice({ text, retry }: { text: string; retry: () => void }) {
  return (
    <div class="notice bad" role="alert" ref={useLeaving<HTMLDivElement>()}>
      <p><StatusMark kind="alert" /> {text}</p>
      <button type="button" onClick={() => { markReloaded(false); retry(); }}>Try again</button>
    </div>
  );
}

export function Failure({ error, retry }: { error: unknown; retry: () => void }) {
  return <Notice text={messageOf(error)} retry={retry} />;
}

/** Catches the errors of a page. Without it an error in rendering empties the whole window. */
export class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
  override state = { error: null };

  static override getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override componentDidCatch(error: unknown) {
    console.error(error);
  }

  render({ children }: { children: ComponentChildren }, { error }: { error: unknown }) {
    if (error === null) return children;
    return <Notice text={`This page has an error: ${String(error)}`} retry={() => this.setState({ error: null })} />;
  }
}

export function Empty({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="empty">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

export type MarkKind = "now" | "rooms" | "reports" | "setup" | "person" | "ok" | "alert" | "offline" | "late"
  | "waiting" | "up" | "down";

const shapes: Record<MarkKind, string> = {
  ok: "M3 8.5l3.5 3.5L13 5",
  alert: "M8 2l6.5 12h-13zM8 6.5v3.5M8 12v.2",
  offline: "M4 4l8 8M12 4l-8 8",
  late: "M8 4.5V8l2.5 1.5M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2z",
  waiting: "M4 8v.2M8 8v.2M12 8v.2",
  up: "M8 13V3M4 7l4-4 4 4",
  down: "M8 3v10M4 9l4 4 4-4",
  now: "M1.5 8H5l2-5 3 10 1.5-5h3",
  rooms: "M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z",
  reports: "M2 14h12M4 14V8M8 14V3M12 14V6",
  setup: "M2 4h7M13 4h1M11 2v4M2 12h1M7 12h7M5 10v4",
  person: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14c.5-3 2.5-4 5.5-4s5 1 5.5 4",
};

/** An icon whose shape says the same as its colour. */
export function StatusMark({ kind }: { kind: MarkKind }) {
  return (
    <svg class="mark" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={shapes[kind]} />
    </svg>
  );
}
