// Parts of the page in files of their own, loaded when they are first shown.
import { useQuery } from "@tanstack/preact-query";
import type { ComponentType, FunctionComponent, VNode } from "preact";
import { messageOf } from "../api/client";
import { recover } from "../api/release";
import { Loading, Notice } from "./states";

type Load<P> = () => Promise<{ default: ComponentType<P> }>;

const loads: (() => Promise<unknown>)[] = [];

/** A component that is loaded when it is first shown, with something in its place
 * meanwhile, and a message if that fails. */
export function chunk<P extends object>(name: string, load: Load<P>,
  meanwhile: VNode = <Loading what={`the ${name}`} />): FunctionComponent<P> {
  const number = loads.push(load);
  return function Chunk(props: P) {
    const { data: Loaded, error, isFetching, refetch } = useQuery({
      queryKey: ["chunk", number],
      queryFn: () => load().then((module) => module.default, (cause: unknown) => recover(cause)),
      staleTime: Infinity, gcTime: Infinity, retry: false,
      // A chunk that failed while offline is loaded again when there is a network.
      networkMode: "always", refetchOnReconnect: true,
    });
    if (Loaded) return <Loaded {...props} />;
    if (!error || isFetching) return meanwhile;
    return <Notice text={`The ${name} could not be loaded. ${messageOf(error)}`} retry={() => void refetch()} />;
  };
}

export const Charts = chunk("charts", () => import("./chart"));

/** Loads every chunk while the browser is idle. One that fails is loaded again when it is shown. */
export function preloadChunks(): void {
  const loadAll = async () => {
    for (const load of loads) await load().catch(() => undefined);
  };
  // Safari has no requestIdleCallback.
  if ("requestIdleCallback" in window) requestIdleCallback(() => void loadAll());
  else setTimeout(() => void loadAll(), 2000);
}
