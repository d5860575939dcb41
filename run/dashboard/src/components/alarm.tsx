// How somebody is told while a tab is open: what they want, and whether the browser lets it.
import { useEffect, useState } from "preact/hooks";
import { allowSound, audible, wishes } from "../api/alarm";
import { chunk } from "./chunk";

const AlarmDialog = chunk("form", () => import("./alarmdialog"));

/** What keeps the browser from it, if something does. */
function obstacle(sound: boolean, notification: boolean): string | null {
  if (sound && !audible()) return "The browser makes no sound before you press something on this page.";
  if (notification && (!("Notification" in self) || Notification.permission !== "granted")) {
    return "The browser does not allow notifications of this page.";
  }
  return null;
}

export function AlarmButton() {
  const [open, setOpen] = useState(false);
  const [wanted, setWanted] = useState(wishes);
  const [, settle] = useState(0);
  useEffect(() => {
    const follow = () => setWanted(wishes());
    // The first press after a reload lets the page sound again.
    const pressed = () => {
      if (wishes().sound) void allowSound().then(() => settle((n) => n + 1));
    };
    addEventListener("storage", follow);
    addEventListener("pointerdown", pressed);
    addEventListener("keydown", pressed);
    return () => {
      removeEventListener("storage", follow);
      removeEventListener("pointerdown", pressed);
      removeEventListener("keydown", pressed);
    };
  }, []);
  const hindered = obstacle(wanted.sound, wanted.notification);
  const told = wanted.sound || wanted.notification ? (hindered ? "waiting" : "on") : "off";
  return (
    <>
      <button type="button" class="quiet" onClick={() => setOpen(true)}>Alarm: {told}</button>
      {open && (
        <AlarmDialog wanted={wanted} setWanted={setWanted} hindered={hindered} onClose={() => setOpen(false)} />
      )}
    </>
  );
}
