import { useEffect } from "preact/hooks";
import { useOverview } from "../api/queries";

/** How many incidents wait for somebody. */
export function useWaiting(): number {
  const { data } = useOverview();
  return data?.incident_counts.to_be_seen ?? 0;
}

/** The tab's title and icon while a page is open, with how many incidents wait, or that nobody knows. */
export function useTitle(title: string): void {
  const open = useWaiting();
  const { isError } = useOverview();
  useEffect(() => {
    document.title = `${isError ? "No contact · " : open > 0 ? `(${open}) ` : ""}${title} · Coldaisle`;
    document.querySelector("link[rel=icon]")?.setAttribute("href", open > 0 ? "/icon-open.svg" : "/icon.svg");
  }, [title, open, isError]);
}
