package release

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/json"
	"hash/crc32"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Cloud Storage.

func (o object) render(bucket, name string) map[string]any {
	sum := md5.Sum(o.content)
	crc := crc32.Checksum(o.content, crc32.MakeTable(crc32.Castagnoli))
	return map[string]any{
		"kind": "storage#object", "bucket": bucket, "name": name, "generation": strconv.FormatInt(o.generation, 10), "metageneration": "1",
		"size": strconv.Itoa(len(o.content)), "mediaLink": "http://storage.invalid/download/storage/v1/b/" + bucket + "/o/" + url.PathEscape(name) + "?alt=media",
		"md5Hash": base64.StdEncoding.EncodeToString(sum[:]),
		"crc32c":  base64.StdEncoding.EncodeToString([]byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)}),
	}
}

func (c *cloud) listObjects(_ http.ResponseWriter, r *http.Request) (any, *fault) {
	if c.forbidden {
		return nil, &fault{http.StatusForbidden, "no permission"}
	}
	items := []any{}
	keys := maps.Clone(c.noncurrent)
	for key := range c.objects {
		keys[key] = nil
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		name, ok := strings.CutPrefix(key, r.PathValue("bucket")+"/")
		if !ok || !strings.HasPrefix(name, r.FormValue("prefix")) {
			continue
		}
		for _, version := range c.versions(key) {
			if strings.EqualFold(r.FormValue("versions"), "true") || version.generation == c.objects[key].generation {
				items = append(items, version.render(r.PathValue("bucket"), name))
			}
		}
	}
	return map[string]any{"kind": "storage#objects", "items": items}, nil
}

// versions are all of an object, the live one last.
func (c *cloud) versions(key string) []object {
	versions := slices.Clone(c.noncurrent[key])
	if live, ok := c.objects[key]; ok {
		versions = append(versions, live)
	}
	return versions
}

// store makes a new live version of an object, of which the one before stays.
func (c *cloud) store(key string, content []byte) {
	c.retire(key)
	c.generation++
	c.objects[key] = object{generation: c.generation, content: content}
}

// retire leaves an object without a live version.
func (c *cloud) retire(key string) {
	c.noncurrent[key] = c.versions(key)
	delete(c.objects, key)
}

func (c *cloud) getObject(w http.ResponseWriter, r *http.Request) (any, *fault) {
	if c.forbidden {
		return nil, &fault{http.StatusForbidden, "no permission"}
	}
	key := r.PathValue("bucket") + "/" + r.PathValue("object")
	o, ok := c.objects[key]
	if generation := r.FormValue("generation"); generation != "" {
		versions := c.versions(key)
		index := slices.IndexFunc(versions, func(o object) bool { return generation == strconv.FormatInt(o.generation, 10) })
		if ok = index >= 0; ok {
			o = versions[index]
		}
	}
	if !ok {
		return nil, notFound()
	}
	if r.FormValue("alt") != "media" && strings.HasPrefix(r.URL.Path, "/storage/") {
		return o.render(r.PathValue("bucket"), r.PathValue("object")), nil
	}
	w.Header().Set("X-Goog-Generation", strconv.FormatInt(o.generation, 10))
	w.Header().Set("X-Goog-Metageneration", "1")
	_, _ = w.Write(o.content)
	return nil, nil
}

// precondition judges ifGenerationMatch: "Setting to 0 makes the operation succeed
// only if there are no live versions of the object", says Cloud Storage's reference.
func (c *cloud) precondition(r *http.Request, key string) *fault {
	want := r.FormValue("ifGenerationMatch")
	if want != "" && want != strconv.FormatInt(c.objects[key].generation, 10) {
		if c.refused != nil {
			c.refused(key)
		}
		return &fault{http.StatusPreconditionFailed, "At least one of the pre-conditions you specified did not hold."}
	}
	return nil
}

func (c *cloud) deleteObject(w http.ResponseWriter, r *http.Request) (any, *fault) {
	key := r.PathValue("bucket") + "/" + r.PathValue("object")
	if _, ok := c.objects[key]; !ok {
		return nil, notFound()
	}
	if refused := c.precondition(r, key); refused != nil {
		return nil, refused
	}
	c.retire(key)
	w.WriteHeader(http.StatusNoContent)
	return nil, nil
}

func (c *cloud) putObject(_ http.ResponseWriter, r *http.Request) (any, *fault) {
	_, parameters, err := mime.ParseMediaType(strings.ReplaceAll(r.Header.Get("Content-Type"), "'", `"`)) // gcloud's quotes
	if err != nil {
		return nil, &fault{http.StatusBadRequest, err.Error()}
	}
	body := multipart.NewReader(r.Body, parameters["boundary"])
	var metadata struct{ Name string }
	part, err := body.NextPart()
	if err != nil || json.NewDecoder(part).Decode(&metadata) != nil {
		return nil, &fault{http.StatusBadRequest, "no metadata"}
	}
	part, err = body.NextPart()
	if err != nil {
		return nil, &fault{http.StatusBadRequest, err.Error()}
	}
	content, err := io.ReadAll(part)
	if err != nil {
		return nil, &fault{http.StatusBadRequest, err.Error()}
	}
	key := r.PathValue("bucket") + "/" + metadata.Name
	if refused := c.precondition(r, key); refused != nil {
		return nil, refused
	}
	c.store(key, content)
	return c.objects[key].render(r.PathValue("bucket"), metadata.Name), nil
}
