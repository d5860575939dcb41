// Finds pages, rooms and sensors by words of their names or ids. "/" and Ctrl-K lead to it.
import Combobox from "@github/combobox-nav";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useLocation } from "wouter-preact";
import { preferences } from "../api/preferences";
import { useOverview } from "../api/queries";
import { entriesOf, search } from "../logic/search";
import { sections } from "../setup";
import { navigation } from "./shell";

const pages = [...navigation, ...sections.slice(1), { path: "/wall", name: "Wall" }];

export default function Search() {
  const { data } = useOverview();
  const [, go] = useLocation();
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const box = useRef<Combobox>();
  const entries = useMemo(() => entriesOf(pages, data), [data]);
  const found = useMemo(() => (open ? search(entries, text) : []), [open, entries, text]);
  // Before the next key, not after the next frame: whoever types fast and presses Enter means what is found.
  useLayoutEffect(() => {
    if (!input.current || !list.current) return;
    box.current =
      new Combobox(input.current, list.current, { tabInsertsSuggestions: false, firstOptionSelectionMode: "active" });
    return () => box.current?.destroy();
  }, []);
  // A new overview that finds the same leaves what the arrows have chosen.
  const paths = found.map(({ path }) => path).join(" ");
  useLayoutEffect(() => {
    if (!open) return;
    box.current?.start();
    return () => box.current?.stop();
  }, [open, text, paths]);
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      const typing = (event.target as HTMLElement).closest("input, select, textarea, dialog");
      const slash = event.key === "/" && !typing && preferences.get().singleKeys && !event.ctrlKey
        && !event.metaKey && !event.altKey;
      if (!slash && !(event.key === "k" && (event.ctrlKey || event.metaKey))) return;
      event.preventDefault();
      input.current?.focus();
      input.current?.select();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const choose = (path: string) => {
    setText("");
    setOpen(false);
    input.current?.blur();
    go(path);
  };
  return (
    <div class="search" role="search">
      <input
        ref={input} type="search" aria-label="Search" placeholder="Search rooms, sensors, pages"
        autoComplete="off" value={text}
        onInput={(event) => { setText(event.currentTarget.value); setOpen(true); }}
        onFocus={() => setOpen(true)} onBlur={() => setOpen(false)}
        onKeyDown={(event) => { if (event.key === "Escape") { setText(""); input.current?.blur(); } }}
      />
      <ul
        ref={list} role="listbox" aria-label="Found" hidden={!open || found.length === 0}
        // The press must not take the focus from the field before it is a click.
        onMouseDown={(event) => event.preventDefault()}
        {...{ "oncombobox-commit": (event: Event) => choose((event.target as HTMLElement).dataset.path ?? "/") }}
      >
        {found.map(({ path, name, note }) => (
          <li key={path} role="option" data-path={path}>{name}{note && <small> {note}</small>}</li>
        ))}
      </ul>
      <p class="unseen" role="status">
        {open && text && (found.length === 0 ? "Nothing found" : `${found.length} found`)}
      </p>
    </div>
  );
}
