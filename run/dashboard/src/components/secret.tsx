import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Dialog } from "./dialog";

/** Where the page before is another site's, only the browser can ask. */
const leave = (event: Event) => event.preventDefault();

/** What the service shows once: only its button closes it. */
export function Secret({ title, text, onClose, children }: {
  title: string; text: string; onClose: () => void; children: ComponentChildren;
}) {
  const [copied, setCopied] = useState<boolean | null>(null);
  useEffect(() => {
    addEventListener("beforeunload", leave);
    return () => removeEventListener("beforeunload", leave);
  }, []);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text); // there is none on a page without HTTPS
      setCopied(true);
    } catch {
      setCopied(false);
    }
  };
  const said = copied ? "Copied." : "The browser did not copy it: mark it and copy it yourself.";
  return (
    <Dialog title={title}>
      {children}
      <pre tabIndex={0}><code>{text}</code></pre>
      <p role="status" class="hint">{copied === null ? "" : said}</p>
      <div class="actions">
        <button type="button" class="primary" onClick={() => void copy()}>Copy</button>
        <button type="button" onClick={onClose}>Done</button>
      </div>
    </Dialog>
  );
}
