import { useEffect } from "preact/hooks";

/** The tab's title while a page is open. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Coldaisle`;
  }, [title]);
}
