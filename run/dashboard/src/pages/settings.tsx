// How the page looks and behaves in this browser.
import { preferences } from "../api/preferences";
import { localTime, withUnit } from "../logic/format";
import { FalseAlarms } from "../components/falsealarms";
import { Select } from "../components/form";
import { useNow } from "../components/clock";
import { May } from "../components/may";
import { useStore } from "../components/store";
import { useTitle } from "../components/title";

const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
const zones = [["", `This browser's (${here})`], ...[...new Set(["UTC", ...Intl.supportedValuesOf("timeZone")])]
  .map((zone) => [zone, zone])] as [string, string][];

export default function SettingsPage() {
  useTitle("Display");
  const { unit, zone, singleKeys } = useStore(preferences);
  const now = useNow();
  return (
    <>
      <h1>Display</h1>
      <div class="pair">
        <section class="card" aria-labelledby="units">
          <h2 id="units">Units and times</h2>
          <Select label="Temperatures" value={unit} onChange={(chosen) => preferences.set({ unit: chosen })}
            options={[["°C", "Degrees Celsius, °C"], ["°F", "Degrees Fahrenheit, °F"]]} />
          <Select label="Time zone of all times" value={zone}
            onChange={(chosen) => preferences.set({ zone: chosen })} options={zones} />
          <p class="hint">
            It is {localTime(now)}, and the recommended range ends at {withUnit(27)}. Downloads have UTC and °C. These
            choices are kept in this browser.
          </p>
        </section>
        <section class="card" aria-labelledby="keyboard">
          <h2 id="keyboard">Keyboard</h2>
          <label class="check">
            <input type="checkbox" checked={singleKeys}
              onChange={(event) => preferences.set({ singleKeys: event.currentTarget.checked })} /> Single-key shortcuts
          </label>
          <p class="hint">
            <kbd>a</kbd> takes the incident that has the focus; <kbd>o</kbd>, <kbd>n</kbd> and <kbd>s</kbd> judge and
            skip predictions. Switch them off if you speak to your computer, or type them by mistake. This choice is
            kept in this browser.
          </p>
        </section>
        <May role="admin"><FalseAlarms /></May>
      </div>
    </>
  );
}
