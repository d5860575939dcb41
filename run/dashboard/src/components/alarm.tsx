// How somebody is told while a tab is open: what they want, and whether the browser lets it.
import { useEffect, useState } from "preact/hooks";
import { allowSound, audible, ring, wish, wishes } from "../api/alarm";
import { Dialog } from "./dialog";

/** What keeps the browser from it, if something does. */
function obstacle(sound: boolean, notification: boolean): string | null {
  if (sound && !audible()) return "The browser makes no sound before you press something on this page.";
  if (notification && (!("Notification" in self) || Notification.permission !== "granted")) return "The browser does not allow notifications of this page.";
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
        <Dialog title="Alarm" onClose={() => setOpen(false)}>
          <p>Tells an incident that nobody has while a tab of Coldaisle is open, in front or behind, and again when it calls again after somebody has taken it. Nothing that is over, came late or is in maintenance is told.</p>
          <label class="check">
            <input type="checkbox" checked={wanted.sound} onChange={async ({ currentTarget }) => {
              const sound = currentTarget.checked;
              if (sound) await allowSound();
              setWanted(wish({ sound }));
              if (sound) ring(false);
            }} /> Play a sound
          </label>
          <label class="check">
            <input type="checkbox" checked={wanted.notification} disabled={!("Notification" in self)} onChange={async ({ currentTarget }) => {
              const notification = currentTarget.checked;
              if (notification) await Notification.requestPermission();
              setWanted(wish({ notification }));
            }} /> Show a notification
          </label>
          {hindered && <p class="hint" role="status">{hindered}</p>}
          <div class="actions">
            <button type="button" class="primary" onClick={() => setOpen(false)}>Done</button>
            {wanted.sound && <button type="button" onClick={() => void allowSound().then(() => ring(true))}>Play it</button>}
          </div>
        </Dialog>
      )}
    </>
  );
}
