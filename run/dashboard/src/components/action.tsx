import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { useLeaving } from "./states";

/** Runs one thing at a time. Of a double click the second press comes before anything is drawn: no state tells. */
export function useOnce(run: () => unknown): () => Promise<void> {
  const running = useRef(false);
  return async () => {
    if (running.current) return;
    running.current = true;
    try {
      await run();
    } finally {
      running.current = false;
    }
  };
}

/** A button that can be told to wait, and why. It keeps the focus then, which a disabled one would lose. */
export function Action(props: {
  waits: string | false; onClick: () => unknown; class?: string; children: ComponentChildren;
}) {
  const { waits, onClick, children } = props;
  const press = useOnce(() => waits === false && onClick());
  return <button ref={useLeaving<HTMLButtonElement>()} type="button" class={props.class}
    aria-disabled={waits !== false} title={waits || undefined} onClick={() => void press()}>{children}</button>;
}
