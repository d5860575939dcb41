// What a person does with an incident. Taking it is one press; all else asks for something first.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { act, actions, type ActionName } from "../api/act";
import { messageOf } from "../api/client";
import { keys, refresh } from "../api/queries";
import { session } from "../api/session";
import { titleOf, type Incident } from "../logic/incidents";
import { Action } from "./action";
import { chunk } from "./chunk";
import { May } from "./may";

const Act = chunk("form", () => import("./act"));

const possible: Record<Incident["state"], readonly ActionName[]> = {
  open: ["take", "snooze", "hand_over", "comment"],
  taken: ["comment", "hand_over", "snooze", "give_back"], over: ["comment"],
};

interface Asked { incident: Incident; action: ActionName }

let ask: (asked: Asked) => void;

/** Asks what an action needs, beside the pages: an incident that leaves its list drops nothing typed. */
export function Acting() {
  const [asked, setAsked] = useState<Asked | null>(null);
  ask = setAsked;
  return asked && <Act {...asked} onClose={() => setAsked(null)} />;
}

/** What can be done with an incident; in short only what is done first. */
export function Actions({ incident, short = false }: { incident: Incident; short?: boolean }) {
  const shown = possible[incident.state].slice(0, short ? 1 : undefined);
  return (
    <May role="operator">
      {shown.map((action) => action === "take" ? <Take key={incident.id} incident={incident} /> : (
        <Button key={action} onClick={() => ask({ incident, action })}>
          {actions[action].name}<span class="unseen"> {titleOf(incident)}</span>
        </Button>
      ))}
    </May>
  );
}

/** Once what was pressed is gone, its row has the focus: the keys go on there. */
function useFocusInRow() {
  const element = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    const own = element.current;
    return () => {
      if (own?.contains(document.activeElement)) own.closest("tr, article")?.querySelector<HTMLElement>("[data-row]")
        ?.focus({ preventScroll: true });
    };
  }, []);
  return element;
}

export function Button({ onClick, children }: { onClick: () => void; children: ComponentChildren }) {
  return <span ref={useFocusInRow()}><button type="button" class="quiet" onClick={onClick}>{children}</button></span>;
}

function Take({ incident }: { incident: Incident }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const take = async () => {
    setBusy(true);
    setError(null);
    try {
      await act(incident, { action: "take" });
      await refresh(keys.live);
    } catch (refused) {
      // Whose session has ended is asked to sign in, and presses again.
      if (!session.expired()) setError(refused);
    }
    setBusy(false);
  };
  return (
    <span ref={useFocusInRow()} data-take>
      <Action class="primary" waits={busy && "One moment…"} onClick={take}>
        I have it<span class="unseen">: {titleOf(incident)}</span>
      </Action>
      {error !== null && <span class="error" role="alert"> {messageOf(error)}</span>}
    </span>
  );
}
