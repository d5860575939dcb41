import type { FunctionComponent, VNode } from "preact";
import { useRef } from "preact/hooks";

/** The component, rendered anew for other props only: Preact skips what it is given unchanged. */
export function memo<P extends object>(Of: FunctionComponent<P>): FunctionComponent<P> {
  return function Memo(props: P) {
    const last = useRef<{ props: P; drawn: VNode }>();
    const before = last.current?.props;
    const keys = Object.keys({ ...before, ...props }) as (keyof P)[];
    if (!before || keys.some((key) => before[key] !== props[key])) last.current = { props, drawn: <Of {...props} /> };
    return last.current?.drawn ?? null;
  };
}
