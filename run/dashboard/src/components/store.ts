import { useEffect, useState } from "preact/hooks";

interface Store<T> { subscribe: (listener: () => void) => () => void; get: () => T }

/** What a store outside of the components holds, followed. */
export function useStore<T>({ subscribe, get }: Store<T>): T {
  const [, follow] = useState(get);
  useEffect(() => {
    const heard = () => follow(get);
    heard(); // it may have changed since it was drawn
    return subscribe(heard);
  }, [subscribe, get]);
  return get();
}
