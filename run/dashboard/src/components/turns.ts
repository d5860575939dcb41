// Large maps are drawn in turns, so that no task is long: some cells in each frame.
import { useEffect, useState } from "preact/hooks";

const queue = new Set<() => void>();
let running = false;

function frame(): void {
  const [next] = queue;
  running = next !== undefined;
  if (!next) return;
  queue.delete(next);
  next();
  requestAnimationFrame(frame);
}

/** The value, when its turn has come; before the first, null. */
export function useTurn<T>(value: T): T | null {
  const [shown, setShown] = useState<{ value: T } | null>(null);
  useEffect(() => {
    const turn = () => setShown({ value });
    queue.add(turn);
    if (!running) requestAnimationFrame(frame);
    running = true;
    return () => void queue.delete(turn);
  }, [value]);
  return shown && shown.value;
}
