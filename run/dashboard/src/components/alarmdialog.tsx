// How somebody wants to be told of incidents while a tab is open.
import { allowSound, ring, wish, type Wishes } from "../api/alarm";
import { Dialog } from "./dialog";

export default function AlarmDialog({ wanted, setWanted, hindered, onClose }: {
  wanted: Wishes; setWanted: (wanted: Wishes) => void; hindered: string | null; onClose: () => void;
}) {
  return (
    <Dialog title="Alarm" onClose={() => onClose()}>
      <p>While a tab of Coldaisle is open, in front or behind, it tells you of each incident that nobody has, and again
        when it gets worse after somebody took it. It is silent about incidents that are over, were reported late, or
        are in maintenance.</p>
      <label class="check">
        <input type="checkbox" checked={wanted.sound} onChange={async ({ currentTarget }) => {
          const sound = currentTarget.checked;
          if (sound) await allowSound();
          setWanted(wish({ sound }));
          if (sound) ring(false);
        }} /> Play a sound
      </label>
      <label class="check">
        <input type="checkbox" checked={wanted.notification} disabled={!("Notification" in self)}
          onChange={async ({ currentTarget }) => {
            const notification = currentTarget.checked;
            if (notification) await Notification.requestPermission();
            setWanted(wish({ notification }));
          }} /> Show a notification
      </label>
      {hindered && <p class="hint" role="status">{hindered}</p>}
      <div class="actions">
        <button type="button" class="primary" onClick={() => onClose()}>Done</button>
        {wanted.sound
          && <button type="button" onClick={() => void allowSound().then(() => ring(true))}>Play it</button>}
      </div>
    </Dialog>
  );
}
