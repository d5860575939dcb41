import type { ComponentChildren } from "preact";

/** A button that can be told to wait, and why. It keeps the focus then, which a disabled one would lose. */
export function Action(props: {
  waits: string | false; onClick: () => unknown; class?: string; children: ComponentChildren;
}) {
  const { waits, onClick, children } = props;
  return <button type="button" class={props.class} aria-disabled={waits !== false} title={waits || undefined}
    onClick={() => void (waits === false && onClick())}>{children}</button>;
}
