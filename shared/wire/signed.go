package wire

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/reading"
)

// Attributes of topic data besides [NodeIDAttribute].
const (
	// AgeAttribute is how long the reading has waited at the gateway, in whole
	// milliseconds; absent when the gateway does not know.
	AgeAttribute = "age_ms"
	// GatewayIDAttribute names the enrolled gateway that signed the message.
	GatewayIDAttribute = "gateway_id"
	// SignatureAttribute is the gateway's signature, see [SignData].
	SignatureAttribute = "signature"
)

// First lines of signed texts, so that a signature of one kind is not valid for the other.
const (
	dataPrefix   = "coldaisle/data/1\n"
	statusPrefix = "coldaisle/status/1\n"
)

// maxAge bounds an age, in milliseconds: ten years, more than any outbox holds.
const maxAge = 10 * 366 * 24 * 3600 * 1000

// ErrOrigin marks malformed attributes.
var ErrOrigin = errors.New("attributes age_ms, gateway_id and signature are malformed")

// Origin holds the attributes of a data message that say where its reading comes from. The
// zero value is that of an open gateway that does not know how long the reading waited.
type Origin struct {
	GatewayID string
	Signature []byte
	Age       Age
}

// Age is how long a reading has waited at its gateway, if that is known.
type Age struct {
	Duration time.Duration // whole milliseconds, 0 or more
	Known    bool
}

// attribute is the value of [AgeAttribute], empty when the age is not known.
func (a Age) attribute() string {
	if !a.Known {
		return ""
	}
	return strconv.FormatInt(a.Duration.Milliseconds(), 10)
}

// ParseOrigin reads the attributes of a message of topic data. A gateway id without a
// signature, or the reverse, is an [ErrOrigin]. So is an age in another form than gateways
// write, because the verified text must be the signed one.
func ParseOrigin(attributes map[string]string) (Origin, error) {
	o := Origin{GatewayID: attributes[GatewayIDAttribute]}
	encoded := attributes[SignatureAttribute]
	if (o.GatewayID == "") != (encoded == "") {
		return Origin{}, fmt.Errorf("%w: one of gateway_id and signature is missing", ErrOrigin)
	}
	if encoded != "" {
		if err := ValidateGatewayID(o.GatewayID); err != nil {
			return Origin{}, fmt.Errorf("%w: %w", ErrOrigin, err)
		}
		signature, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil || len(signature) != ed25519.SignatureSize {
			return Origin{}, fmt.Errorf("%w: signature is not the base64 of %d bytes", ErrOrigin, ed25519.SignatureSize)
		}
		o.Signature = signature
	}
	if text, ok := attributes[AgeAttribute]; ok && text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil || ms < 0 || ms > maxAge || strconv.FormatInt(ms, 10) != text {
			return Origin{}, fmt.Errorf("%w: age_ms is %q", ErrOrigin, text)
		}
		o.Age = Age{Duration: time.Duration(ms) * time.Millisecond, Known: true}
	}
	return o, nil
}

// Signed reports whether the message claims to be signed by an enrolled gateway.
func (o Origin) Signed() bool { return o.GatewayID != "" }

// Verify reports whether the key's owner signed the data with these attributes. Its timestamp is
// taken as it is written there: other programs' may have zeros at the end, or an offset.
func (o Origin) Verify(key ed25519.PublicKey, data []byte) bool {
	var in struct {
		Timestamp string `json:"timestamp"`
	}
	return len(key) == ed25519.PublicKeySize && json.Unmarshal(data, &in) == nil &&
		ed25519.Verify(key, append(signedHead(o.GatewayID, in.Timestamp, o.Age, len(data)), data...), o.Signature)
}

// SignData returns the attributes by which an enrolled gateway signs a message of
// topic data: the gateway's id, the age and the Ed25519 signature, in base64, of
//
//	coldaisle/data/1
//	<gateway id>
//	<timestamp as in the data>
//	<age in milliseconds, empty when it is not known>
//	<data>
//
// at is the reading's time, which [EncodeData] wrote. A reading that is published again is signed again, because its
// age has changed.
func SignData(key ed25519.PrivateKey, gatewayID string, at time.Time, age Age, data []byte) map[string]string {
	stamp := reading.TruncateTime(at).Format(time.RFC3339Nano)
	attributes := map[string]string{
		GatewayIDAttribute: gatewayID,
		SignatureAttribute: base64.StdEncoding.EncodeToString(ed25519.Sign(key, append(signedHead(gatewayID, stamp, age, len(data)), data...))),
	}
	if age.Known {
		attributes[AgeAttribute] = age.attribute()
	}
	return attributes
}

// signedHead returns the signed lines that precede the data, with capacity to append it.
func signedHead(gatewayID, stamp string, age Age, room int) []byte {
	head := make([]byte, 0, len(dataPrefix)+len(gatewayID)+64+room)
	head = append(head, dataPrefix...)
	head = append(append(head, gatewayID...), '\n')
	head = append(append(head, stamp...), '\n')
	return append(append(head, age.attribute()...), '\n')
}
