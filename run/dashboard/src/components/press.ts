// What a person presses stays under the finger until it is released: meanwhile nothing is drawn,
// whether an answer, a clock or another part of the page asks for it.
import { options } from "preact";

/** What acts on release. All else acts at once or is dragged, and is drawn as ever. */
const pressable = "a, button, label, summary, [role=option], [type=checkbox], [type=radio]";

/** A press whose end no browser tells, and a finger that rests, withhold nothing for longer. */
const longest = 3000;

/** For how many milliseconds more nothing is drawn. A lifted finger clicks once no second tap can come;
 * scrolling, dragging, a menu of the browser and another window end a press without a click. */
const ends = { pointerup: 350, click: 0, auxclick: 0, pointercancel: 0, contextmenu: 0, blur: 0 };

export function keepStill(): void {
  let held: (() => void) | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const hold = (wait: number) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = undefined;
      held?.();
      held = undefined;
    }, wait);
  };
  // Preact asks once for all that has changed.
  options.debounceRendering = (draw) => {
    if (timer) held = draw;
    else queueMicrotask(draw);
  };
  addEventListener("pointerdown", ({ isPrimary, target }) => {
    if (isPrimary && (target as Element).closest(pressable)) hold(longest);
  });
  for (const [end, wait] of Object.entries(ends)) addEventListener(end, () => timer && hold(wait));
}
